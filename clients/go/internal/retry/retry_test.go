package retry

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
)

func away(after time.Duration) Failure { return Failure{Status: codes.Unavailable, After: after} }

func TestPausesGrowToABoundAndEnd(t *testing.T) {
	start := time.Unix(0, 0)
	tried := &Attempts{Most: 8, GiveUp: start.Add(time.Hour), Repeatable: true}
	for i, expected := range []time.Duration{100, 200, 400, 800, 1600, 2000, 2000} {
		pause, again := tried.pause(start, time.Time{}, away(0), 1)
		if !again || pause != expected*time.Millisecond {
			t.Errorf("pause %d is %s, %v", i+1, pause, again)
		}
	}
	if _, again := tried.pause(start, time.Time{}, away(0), 1); again {
		t.Error("there is a ninth attempt")
	}
}

func TestAPauseThatTheServerAsksForIsAFloor(t *testing.T) {
	start := time.Unix(0, 0)
	tried := &Attempts{Most: 8, GiveUp: start.Add(time.Hour), Repeatable: true}
	pause, again := tried.pause(start, time.Time{}, away(5*time.Second), 0.5)
	if !again || pause != 5*time.Second+50*time.Millisecond {
		t.Errorf("the pause is %s, %v", pause, again)
	}
}

func TestNoAttemptBeginsTooLate(t *testing.T) {
	start := time.Unix(0, 0)
	for name, one := range map[string]struct {
		now, deadline time.Time
		again         bool
	}{
		"in time":              {start, time.Time{}, true},
		"after the patience":   {start.Add(time.Minute), time.Time{}, false},
		"after the deadline":   {start, start.Add(time.Millisecond), false},
		"before the deadline":  {start, start.Add(time.Second), true},
		"the patience is over": {start.Add(2 * time.Minute), time.Time{}, false},
	} {
		tried := &Attempts{Most: 8, GiveUp: start.Add(time.Minute), Repeatable: true}
		if _, again := tried.pause(one.now, one.deadline, away(0), 1); again != one.again {
			t.Errorf("%s: another attempt is %v", name, again)
		}
	}
}
