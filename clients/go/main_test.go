package tuskpoint_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"os"
	"testing"
	"time"

	"tuskpoint.dev/go/tuskpoint"
	"tuskpoint.dev/go/tuskpoint/internal/servertest"
)

// shared is the server of tests that need no server of their own.
var shared *servertest.Server

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	for _, variable := range []string{
		tuskpoint.TargetVariable, tuskpoint.TokenVariable, tuskpoint.TokenFileVariable,
		tuskpoint.CAFileVariable, tuskpoint.CertFileVariable, tuskpoint.KeyFileVariable,
		tuskpoint.TLSVariable,
	} {
		if err := os.Unsetenv(variable); err != nil {
			panic(err)
		}
	}
	directory, err := os.MkdirTemp("", "tuskpoint-go-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(directory)
	if shared, err = servertest.Start(directory); err != nil {
		fmt.Fprintln(os.Stderr, "there is no server to test with:", err)
		return 1
	}
	defer func() {
		if err := shared.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "the server did not end well:", err)
		}
	}()
	return m.Run()
}

// dial returns a client of the shared server.
func dial(t *testing.T, options ...tuskpoint.Option) *tuskpoint.Client {
	t.Helper()
	return dialTo(t, shared.Target, options...)
}

func dialTo(t *testing.T, target string, options ...tuskpoint.Option) *tuskpoint.Client {
	t.Helper()
	client := must(tuskpoint.Dial(target, options...))(t)
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
	return client
}

// startServer runs a server for one test.
func startServer(t *testing.T, arguments ...string) *servertest.Server {
	t.Helper()
	server := must(servertest.Start(t.TempDir(), arguments...))(t)
	t.Cleanup(func() {
		if err := server.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Error(err)
		}
	})
	return server
}

// within returns a context that ends the test's calls long before the test's own timeout.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// newThread returns the name of a thread that no other test uses.
func newThread() string { return "go-" + rand.Text() }

// must returns a function that returns the result, or fails the test: must(call())(t).
func must[T any](result T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
}

// save saves a state and returns the ID of its checkpoint.
func save(t *testing.T, client *tuskpoint.Client, thread string, state map[string]any) string {
	t.Helper()
	return must(client.Save(within(t), thread, state, nil))(t).CheckpointID
}

// collect returns the items of a sequence without an error.
func collect[T any](t *testing.T, all iter.Seq2[T, error]) []T {
	t.Helper()
	var items []T
	for item, err := range all {
		if err != nil {
			t.Fatal(err)
		}
		items = append(items, item)
	}
	return items
}

// wantError fails the test unless an error has a kind and a reason.
func wantError(t *testing.T, err, kind error, reason string) *tuskpoint.Error {
	t.Helper()
	var failure *tuskpoint.Error
	if !errors.As(err, &failure) {
		t.Fatalf("the error is %v, no *tuskpoint.Error", err)
	}
	if !errors.Is(err, kind) || failure.Reason != reason {
		t.Fatalf("the error is %q with reason %q, not %q with %q", err, failure.Reason, kind, reason)
	}
	return failure
}

func want[T comparable](t *testing.T, what string, got, expected T) {
	t.Helper()
	if got != expected {
		t.Errorf("%s is %v, not %v", what, got, expected)
	}
}
