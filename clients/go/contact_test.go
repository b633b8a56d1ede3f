package tuskpoint_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"tuskpoint.dev/go/tuskpoint"
)

// late is the time that a loaded machine may add.
const late = 1500 * time.Millisecond

// lines records the log, with the time of each line.
type lines struct {
	mutex sync.Mutex
	text  bytes.Buffer
	times []time.Time
}

func (l *lines) Write(line []byte) (int, error) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.times = append(l.times, time.Now())
	return l.text.Write(line)
}

func (l *lines) logger() tuskpoint.Option {
	return tuskpoint.WithLogger(slog.New(slog.NewTextHandler(l, nil)))
}

// silent returns an address that accepts connections and never sends anything.
func silent(t *testing.T) string {
	t.Helper()
	listener := must(net.Listen("tcp", anywhere))(t)
	t.Cleanup(func() { listener.Close() })
	return listener.Addr().String()
}

// refusing returns an address where nothing listens.
func refusing(t *testing.T) string {
	t.Helper()
	listener := must(net.Listen("tcp", anywhere))(t)
	listener.Close()
	return listener.Addr().String()
}

func first[T any](all iter.Seq2[T, error]) error {
	for _, err := range all {
		return err
	}
	return nil
}

func TestATargetThatNeverAnswersIsReportedAfterFiveSeconds(t *testing.T) {
	addresses := map[string]func(*testing.T) string{
		"connection refused": refusing, "no answer within ": silent,
	}
	calls := map[string]func(context.Context, *tuskpoint.Client) error{
		"info": func(ctx context.Context, client *tuskpoint.Client) error {
			_, err := client.Info(ctx)
			return err
		},
		"save": func(ctx context.Context, client *tuskpoint.Client) error {
			_, err := client.Save(ctx, "t", map[string]any{"n": 1}, nil)
			return err
		},
		"list":  func(ctx context.Context, client *tuskpoint.Client) error { return first(client.List(ctx, "t", nil)) },
		"watch": func(ctx context.Context, client *tuskpoint.Client) error { return first(client.Watch(ctx, "t", nil)) },
	}
	for cause, address := range addresses {
		for name, call := range calls {
			t.Run(cause+" "+name, func(t *testing.T) {
				t.Parallel()
				target, logged := address(t), &lines{}
				client := dialTo(t, target, logged.logger())
				started := time.Now()
				failure := wantError(t, call(within(t), client), tuskpoint.ErrUnavailable, "")
				if waited := time.Since(started); waited < 5*time.Second || waited > 5*time.Second+late {
					t.Errorf("the call fails after %s", waited)
				}
				_, port, _ := net.SplitHostPort(target)
				answers := fmt.Sprintf("no TuskPoint server answers at %s: start one with "+
					"`tuskpoint-server dev --port %s`", target, port)
				if !strings.HasPrefix(failure.Message, answers) || !strings.Contains(failure.Message, cause) {
					t.Errorf("the message is %q", failure.Message)
				}
				want(t, "the number of warnings", len(logged.times), 1)
				if !strings.Contains(logged.text.String(), "still waiting: "+answers) {
					t.Errorf("the warning is %q", logged.text.String())
				}
				if at := logged.times[0].Sub(started); at < 2*time.Second || at > 2*time.Second+late {
					t.Errorf("the warning is logged after %s", at)
				}
			})
		}
	}
}

func TestAServerThatStartsWithinThatTimeIsReached(t *testing.T) {
	for _, after := range []time.Duration{time.Second, 5*time.Second - 200*time.Millisecond} {
		t.Run(after.String(), func(t *testing.T) {
			t.Parallel()
			target, done := refusing(t), make(chan error, 1)
			client := dialTo(t, target, (&lines{}).logger())
			go func() {
				_, err := client.Info(within(t))
				done <- err
			}()
			time.Sleep(after)
			start(t, &scripted{info: func(int, context.Context) error { return nil }}, target)
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}

func TestATargetThatAnsweredBeforeIsWaitedForUntilTheTimeout(t *testing.T) {
	server, logged := startServer(t), &lines{}
	must(dialTo(t, server.Target).Info(within(t)))(t)
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	// Another client of the same process, which has a connection of its own.
	client, done := dialTo(t, server.Target, logged.logger()), make(chan error, 1)
	go func() {
		_, err := client.Info(within(t))
		done <- err
	}()
	select {
	case err := <-done:
		t.Fatalf("the call ended early: %v", err)
	case <-time.After(5*time.Second + late):
	}
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	want(t, "what was logged", logged.text.String(), "")
}

func TestATimeoutThatIsNamedCountsForTheFirstAnswerToo(t *testing.T) {
	short := dialTo(t, refusing(t), tuskpoint.WithTimeout(700*time.Millisecond))
	started := time.Now()
	_, err := short.Info(within(t))
	wantError(t, err, tuskpoint.ErrUnavailable, "")
	if waited := time.Since(started); waited < 700*time.Millisecond || waited > 700*time.Millisecond+late {
		t.Errorf("the call fails after %s", waited)
	}
}

func TestAContextEndsTheWaitForTheFirstAnswer(t *testing.T) {
	client := dialTo(t, silent(t))
	brief, cancel := context.WithTimeout(within(t), 100*time.Millisecond)
	defer cancel()
	started := time.Now()
	_, err := client.Info(brief)
	wantError(t, err, tuskpoint.ErrUnavailable, "")
	cancelled, stop := context.WithCancel(within(t))
	time.AfterFunc(100*time.Millisecond, stop)
	_, err = client.Info(cancelled)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the error of a cancelled call is %v", err)
	}
	if waited := time.Since(started); waited > late {
		t.Errorf("the calls end after %s", waited)
	}
}

func TestASlowCallIsNoSilence(t *testing.T) {
	slow, _ := start(t, &scripted{info: func(int, context.Context) error {
		time.Sleep(2500 * time.Millisecond)
		return nil
	}}, anywhere)
	logged := &lines{}
	must(dialTo(t, slow, logged.logger()).Info(within(t)))(t)
	want(t, "what was logged", logged.text.String(), "")
}

func TestAnotherServiceThatAnswersIsAnAnswer(t *testing.T) {
	other, _ := start(t, &scripted{info: func(int, context.Context) error {
		return status.Error(codes.Unimplemented, "another service")
	}}, anywhere)
	started := time.Now()
	_, err := dialTo(t, other).Info(within(t))
	wantError(t, err, tuskpoint.ErrUnimplemented, "")
	if waited := time.Since(started); waited > late {
		t.Errorf("the call ends after %s", waited)
	}
}
