/**
 * The frame around every view: navigation, the sign-in, and notices.
 *
 * All views are loaded at once: an open page keeps working while its server is away or replaced.
 */

import { type IconNode, LogOut, Monitor, Moon, Sun } from "lucide";
import { useState } from "preact/hooks";
import { ErrorBoundary, LocationProvider, Route, Router, useLocation } from "preact-iso";
import DiffPage from "./diff/page.tsx";
import AdoptPage from "./handoff/adopt_page.tsx";
import mark from "./icon.svg";
import InboxPage from "./inbox/page.tsx";
import { Keys } from "./keys.tsx";
import { threadsLink } from "./links.ts";
import OperationsPage from "./operations/page.tsx";
import { PAGES, type PageName } from "./pages.ts";
import { Palette, PaletteButton } from "./palette/palette.tsx";
import { Dialog } from "./parts/ask.tsx";
import { TextField } from "./parts/fields.tsx";
import { Icon, IconButton } from "./parts/icon.tsx";
import { Notices } from "./parts/notices.tsx";
import { Empty } from "./parts/problem.tsx";
import { Title } from "./parts/title.tsx";
import ProofPage from "./proof/page.tsx";
import SearchPage from "./search/page.tsx";
import { refused, signIn, token } from "./server/session.ts";
import SnapshotsPage from "./snapshots/page.tsx";
import { after, type Theme, theme } from "./theme.ts";
import ThreadPage from "./thread/page.tsx";
import { ThreadsPage } from "./threads/page.tsx";

export function App() {
  return (
    <LocationProvider>
      <a class="skip" href="#main">
        Skip to the content
      </a>
      <Header />
      <main id="main" tabIndex={-1}>
        <ErrorBoundary onError={(error) => reportError(error)}>
          <Router>
            <Route path="/" component={ThreadsPage} />
            <Route path="/threads" component={ThreadsPage} />
            <Route path="/thread" component={ThreadPage} />
            <Route path="/diff" component={DiffPage} />
            <Route path="/proof" component={ProofPage} />
            <Route path="/search" component={SearchPage} />
            <Route path="/snapshots" component={SnapshotsPage} />
            <Route path="/inbox" component={InboxPage} />
            <Route path="/adopt" component={AdoptPage} />
            <Route path="/operations" component={OperationsPage} />
            <Route default component={Nowhere} />
          </Router>
        </ErrorBoundary>
      </main>
      <Notices />
      <Keys />
      <Palette />
      {refused.value && <SignIn why={refused.value} />}
    </LocationProvider>
  );
}

function Header() {
  return (
    <header>
      <a class="brand" href={threadsLink()}>
        <img src={mark} alt="" width="24" height="24" />
        <span>TuskPoint</span>
      </a>
      <nav aria-label="Pages">
        {PAGES.map((page) => (
          <Tab key={page.href} page={page} />
        ))}
      </nav>
      <div class="header-side">
        <PaletteButton />
        <ThemeChoice />
        {token.value && <IconButton of={LogOut} label="Sign out" onClick={() => signIn("")} />}
      </div>
    </header>
  );
}

function Tab({ page: { name, href, icon, below } }: { page: PageName }) {
  const { path } = useLocation();
  const here = path === href || below.includes(path);
  return (
    <a href={href} aria-current={here ? "page" : undefined}>
      <Icon of={icon} />
      <span>{name}</span>
    </a>
  );
}

const THEMES: Record<Theme, IconNode> = { system: Monitor, light: Sun, dark: Moon };

function ThemeChoice() {
  const next = after(theme.value);
  const change = () => {
    theme.value = next;
  };
  const label = `Theme: ${theme.value}; change to ${next}`;
  return <IconButton of={THEMES[theme.value]} label={label} onClick={change} />;
}

/** Asks for a token over the page, which stays unchanged behind the dialog. */
function SignIn({ why }: { why: string }) {
  const [text, setText] = useState("");
  const submit = (event: Event) => {
    event.preventDefault();
    signIn(text);
  };
  return (
    <Dialog title="Sign in">
      <form onSubmit={submit}>
        <p>{why}</p>
        <TextField
          label="Token"
          value={text}
          onInput={setText}
          required
          hint="Kept in this tab until you close it."
        />
        <div class="buttons">
          <button type="submit" class="primary">
            Sign in
          </button>
        </div>
      </form>
    </Dialog>
  );
}

function Nowhere() {
  return (
    <>
      <Title text="Page not found" />
      <Empty title="The address does not name a page of the console.">
        <a href={threadsLink()}>All threads</a>
      </Empty>
    </>
  );
}
