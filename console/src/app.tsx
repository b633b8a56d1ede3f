/**
 * The frame around every view: navigation, the sign-in, and notices.
 *
 * All views are loaded at once: an open page keeps working while its server is away or replaced.
 */

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { ErrorBoundary, LocationProvider, Route, Router, useLocation } from "preact-iso";
import DiffPage from "./diff/page.tsx";
import AdoptPage from "./handoff/adopt_page.tsx";
import { Keys } from "./keys.tsx";
import { adoptLink, operationsLink, searchLink, snapshotsLink, threadsLink } from "./links.ts";
import OperationsPage from "./operations/page.tsx";
import { Dialog } from "./parts/ask.tsx";
import { TextField } from "./parts/fields.tsx";
import { Notices } from "./parts/notices.tsx";
import { Empty } from "./parts/problem.tsx";
import { Title } from "./parts/title.tsx";
import ProofPage from "./proof/page.tsx";
import SearchPage from "./search/page.tsx";
import { refused, signIn, token } from "./server/session.ts";
import SnapshotsPage from "./snapshots/page.tsx";
import { type Theme, theme } from "./theme.ts";
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
            <Route path="/adopt" component={AdoptPage} />
            <Route path="/operations" component={OperationsPage} />
            <Route default component={Nowhere} />
          </Router>
        </ErrorBoundary>
      </main>
      <Notices />
      <Keys />
      {refused.value && <SignIn why={refused.value} />}
    </LocationProvider>
  );
}

function Header() {
  return (
    <header>
      <a class="brand" href={threadsLink()}>
        TuskPoint
      </a>
      <nav aria-label="Pages">
        <Tab href={threadsLink()} others={["/", "/thread", "/diff", "/proof"]}>
          Threads
        </Tab>
        <Tab href={searchLink()}>Search</Tab>
        <Tab href={snapshotsLink()}>Snapshots</Tab>
        <Tab href={adoptLink}>Adopt</Tab>
        <Tab href={operationsLink}>Operations</Tab>
      </nav>
      <ThemeChoice />
      {token.value && (
        <button type="button" onClick={() => signIn("")}>
          Sign out
        </button>
      )}
    </header>
  );
}

interface TabProps {
  href: string;
  others?: string[];
  children: ComponentChildren;
}

function Tab({ href, others = [], children }: TabProps) {
  const { path } = useLocation();
  const here = path === href || others.includes(path);
  return (
    <a href={href} aria-current={here ? "page" : undefined}>
      {children}
    </a>
  );
}

function ThemeChoice() {
  return (
    <select
      class="theme"
      aria-label="Colours"
      value={theme.value}
      onChange={(event) => {
        theme.value = event.currentTarget.value as Theme;
      }}
    >
      <option value="system">System</option>
      <option value="light">Light</option>
      <option value="dark">Dark</option>
    </select>
  );
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
          hint="Kept for this tab alone, until you close it."
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
