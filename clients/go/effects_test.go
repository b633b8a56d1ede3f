package tuskpoint_test

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"testing"
	"time"

	"tuskpoint.dev/go/tuskpoint"
	"tuskpoint.dev/go/tuskpoint/tuskpointv1"
)

type charge struct {
	ID     string
	Amount int
}

// working returns work that counts its calls and has a result or an error.
func working[T any](calls *int, result T, err error) func(context.Context, tuskpoint.Attempt) (T, error) {
	return func(context.Context, tuskpoint.Attempt) (T, error) {
		*calls++
		return result, err
	}
}

func TestWorkIsDoneOnceAndItsResultComesBack(t *testing.T) {
	client, thread := dial(t), newThread()
	ctx, calls := within(t), 0
	digest := must(tuskpoint.InputDigest(map[string]any{"amount": 5}))(t)
	options := &tuskpoint.EffectOptions{Name: "charge", InputDigest: digest}
	for range 2 {
		got := must(tuskpoint.DoOnce(ctx, client, thread, "charge", options,
			working(&calls, charge{"ch_1", 5}, nil)))(t)
		want(t, "the result", got, charge{"ch_1", 5})
	}
	want(t, "the number of calls", calls, 1)

	other := &tuskpoint.EffectOptions{InputDigest: must(tuskpoint.InputDigest(6))(t)}
	_, err := tuskpoint.DoOnce(ctx, client, thread, "charge", other, working(&calls, 0, nil))
	wantError(t, err, tuskpoint.ErrEffectInputChanged, "EFFECT_INPUT_CHANGED")
	_, err = tuskpoint.DoOnce(ctx, client, thread, "charge", nil, working(&calls, "", nil))
	wantError(t, err, tuskpoint.ErrUnreadable, "")
	want(t, "the number of calls", calls, 1)

	bytes := must(tuskpoint.DoOnce(ctx, client, thread, "bytes", nil,
		working(&calls, []byte{0, 255}, nil)))(t)
	want(t, "the bytes", string(bytes), "\x00\xff")
	states := map[string]tuskpointv1.EffectState{}
	for _, effect := range collect(t, client.ListEffects(ctx, thread)) {
		states[effect.GetKey()] = effect.GetState()
	}
	want(t, "the number of effects", len(states), 2)
	want(t, "the state", states["charge"], tuskpointv1.EffectState_EFFECT_STATE_DONE)
}

func TestAnErrorOfWorkDecidesWhetherTheWorkMayBeDoneAgain(t *testing.T) {
	client, thread := dial(t), newThread()
	ctx, calls, problem := within(t), 0, errors.New("connection reset")
	do := func(key string, err error) error {
		_, failure := tuskpoint.DoOnce(ctx, client, thread, key, nil, working(&calls, "done", err))
		return failure
	}
	notDone := wantError(t, do("retried", tuskpoint.NotDone(problem)), tuskpoint.ErrEffectNotDone, "")
	want(t, "the error wraps the error of the work", errors.Is(notDone, problem), true)
	want(t, "the second attempt", do("retried", nil), nil)
	want(t, "the number of calls", calls, 2)

	for range 2 { // The second call finds the recorded refusal.
		refused := wantError(t, do("refused", tuskpoint.Refused(problem)), tuskpoint.ErrEffectRefused, "")
		want(t, "the problem", refused.Effect.GetError(), problem.Error())
	}
	want(t, "the number of calls", calls, 3)

	want(t, "the error of the work", do("lost", problem), problem)
	unknown := wantError(t, do("lost", nil), tuskpoint.ErrEffectUnknown, "")
	want(t, "the error is also", errors.Is(unknown, tuskpoint.ErrPreconditionFailed), true)
	want(t, "the number of calls", calls, 4)

	// A result that cannot be recorded does not repeat the work.
	_, err := tuskpoint.DoOnce(ctx, client, thread, "unencodable", nil,
		working[any](&calls, func() {}, nil))
	wantError(t, err, tuskpoint.ErrInvalidRequest, "INVALID_FIELD")
	wantError(t, do("unencodable", nil), tuskpoint.ErrEffectUnknown, "")
	want(t, "the number of calls", calls, 5)
}

func TestWorkThatPanicsOrOutlivesItsContextIsReported(t *testing.T) {
	client, thread := dial(t), newThread()
	func() {
		defer func() { want(t, "the panic", recover(), any("stop")) }()
		_, _ = tuskpoint.DoOnce(within(t), client, thread, "panic", nil,
			func(context.Context, tuskpoint.Attempt) (string, error) { panic("stop") })
	}()
	effect := must(client.GetEffect(within(t), thread, "panic"))(t)
	want(t, "the state", effect.GetState(), tuskpointv1.EffectState_EFFECT_STATE_UNKNOWN)

	ctx, cancel := context.WithCancel(within(t))
	got := must(tuskpoint.DoOnce(ctx, client, thread, "late", nil,
		func(context.Context, tuskpoint.Attempt) (string, error) {
			cancel()
			return "done", nil
		}))(t)
	want(t, "the result", got, "done")
}

func TestAnAttemptElsewhereIsWaitedFor(t *testing.T) {
	client, thread := dial(t), newThread()
	ctx, calls := within(t), 0
	begun := must(client.BeginEffect(ctx, thread, "mail", nil))(t)
	want(t, "the first caller runs", begun.GetRun(), true)

	short, cancel := context.WithTimeout(ctx, 150*time.Millisecond)
	defer cancel()
	_, err := tuskpoint.DoOnce(short, client, thread, "mail", nil, working(&calls, "again", nil))
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("the error is %v, no end of the deadline", err)
	}
	results := make(chan string)
	go func() {
		result, err := tuskpoint.DoOnce(ctx, client, thread, "mail", nil, working(&calls, "again", nil))
		if err != nil {
			result = err.Error()
		}
		results <- result
	}()
	must(client.CompleteEffect(ctx, begun.GetEffect(), "sent", nil))(t)
	want(t, "the result", <-results, "sent")
	want(t, "the number of calls", calls, 0)
}

func TestAnAttemptUnderALeaseIsUnknownOnceTheLeaseHasEnded(t *testing.T) {
	client, thread := dial(t), newThread()
	err := client.WithLease(within(t), thread, nil, func(ctx context.Context, lease *tuskpoint.Lease) error {
		begun := must(client.BeginEffect(ctx, thread, "mail", nil))(t)
		want(t, "the lease", begun.GetEffect().GetLeaseId(), lease.GetLeaseId())
		return nil
	})
	want(t, "the error", err, nil)
	effect := must(client.GetEffect(within(t), thread, "mail"))(t)
	want(t, "the state", effect.GetState(), tuskpointv1.EffectState_EFFECT_STATE_UNKNOWN)
}

func TestAnUnknownEffectIsDecided(t *testing.T) {
	client, thread := dial(t), newThread()
	ctx := within(t)
	begun := must(client.BeginEffect(ctx, thread, "mail", nil))(t).GetEffect()
	_, err := client.ResolveEffect(ctx, begun, tuskpoint.Decision{Done: true})
	wantError(t, err, tuskpoint.ErrEffectNotUnknown, "EFFECT_NOT_UNKNOWN")
	must(client.FailEffect(ctx, begun, tuskpoint.OutcomeUnknown, "timeout", nil))(t)
	open := collect(t, client.ListEffects(ctx, thread, tuskpointv1.EffectState_EFFECT_STATE_UNKNOWN))
	want(t, "the number of open effects", len(open), 1)
	decision := tuskpoint.Decision{Done: true, Result: "sent", ResolvedBy: "ada"}
	resolved := must(client.ResolveEffect(ctx, open[0], decision))(t)
	want(t, "who decided", resolved.GetResolvedBy(), "ada")
	calls := 0
	got := must(tuskpoint.DoOnce(ctx, client, thread, "mail", nil, working(&calls, "again", nil)))(t)
	want(t, "the result", got, "sent")
}

func TestADigestIsTheSameInAllLanguages(t *testing.T) {
	// From Python: sha256(b"json\0" + canonical JSON).
	const expected = "3280f208db8d155e063344d2e4a0f0574e786410fc5249bc1ef131736f05a57c"
	input := struct {
		Zebra string         `json:"z"`
		Inner map[string]any `json:"ä"`
		List  []any          `json:"a"`
	}{"<\u2028\\u2028\b\x7f>", map[string]any{"\U0001f418": 1, "\uffff": true}, []any{nil, -3}}
	want(t, "the digest", hex.EncodeToString(must(tuskpoint.InputDigest(input))(t)), expected)
}

func TestADigestIsTheDigestOfTheVectors(t *testing.T) {
	var vectors []struct {
		Input         string
		SHA256        string
		ExactIntegers bool `json:"exact_integers"`
	}
	text := must(os.ReadFile("../../tests/interop/input_digests.json"))(t)
	if err := json.Unmarshal(text, &vectors); err != nil || len(vectors) < 10 {
		t.Fatal(len(vectors), err)
	}
	for _, vector := range vectors {
		inputs := []any{json.RawMessage(vector.Input)}
		if !vector.ExactIntegers { // float64 rounds an integer above 2**53.
			var decoded any
			if err := json.Unmarshal([]byte(vector.Input), &decoded); err != nil {
				t.Fatal(err)
			}
			inputs = append(inputs, decoded)
		}
		for _, input := range inputs {
			digest := hex.EncodeToString(must(tuskpoint.InputDigest(input))(t))
			want(t, "the digest of "+vector.Input, digest, vector.SHA256)
		}
	}
	_, err := tuskpoint.InputDigest(json.Number("1.5e400"))
	wantError(t, err, tuskpoint.ErrInvalidRequest, "INVALID_FIELD")
}
