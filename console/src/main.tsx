import { render } from "preact";
import { App } from "./app.tsx";
import "./style/base.css";
import "./style/controls.css";
import "./style/shell.css";
import "./theme.ts";

const root = document.getElementById("console");
if (root) {
  render(<App />, root);
}
