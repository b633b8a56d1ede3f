package main

import (
	"context"
	"regexp"
	"strings"
	"testing"
	"time"

	"tuskpoint.dev/go/tuskpoint/internal/servertest"
)

func TestTheWriterGoesOnWhereThePlannerStood(t *testing.T) {
	server, err := servertest.Start(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := server.Kill(); err != nil {
			t.Error(err)
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var output strings.Builder
	if err := run(ctx, server.Target, &output); err != nil {
		t.Fatal(err)
	}
	const expected = `planner: Found two sources.
planner: Planned the briefing.
writer: ADOPT_STAGE_FETCHING, 0 bytes
writer: ADOPT_STAGE_FETCHED, N bytes
writer: ADOPT_STAGE_VERIFIED, N bytes
writer: ADOPT_STAGE_ADOPTED, N bytes
writer: continues with [write] after [read]
writer: wrote the briefing
`
	sizes := regexp.MustCompile(`[1-9][0-9]* bytes`)
	if got := sizes.ReplaceAllString(output.String(), "N bytes"); got != expected {
		t.Errorf("it printed:\n%s", output.String())
	}
}
