package tuskpoint

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"iter"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"tuskpoint.dev/go/tuskpoint/tuskpointv1"
)

// EffectOptions are the settings of [Client.BeginEffect] and [DoOnce].
type EffectOptions struct {
	// Name of the work, for people.
	Name string

	// InputDigest is the digest of the input of the work; see [InputDigest]. If the recorded effect
	// has another digest, the call fails with [ErrEffectInputChanged]. Empty: not compared.
	InputDigest []byte

	// CheckpointID is the checkpoint from which the task runs, if the key belongs to a task. Empty:
	// the key holds for the whole thread.
	CheckpointID string

	// Namespace of CheckpointID; empty is the root.
	Namespace string

	// LeaseID is the lease under which the agent runs. Once the lease is lost, the attempt is
	// unknown. Empty: the lease of the thread that this client has.
	LeaseID string

	// Timeout is the time after which the attempt is unknown, unless it reports before: 1 second to
	// 7 days. The work must end before. 0 means 60 seconds.
	Timeout time.Duration

	// RetryUnknown does the work again, with the same idempotency key, if an earlier attempt did
	// not report. Set it only if the outside world honours that key.
	RetryUnknown bool

	// Owner is who runs the attempt, for people. DoOnce names host and process by default.
	Owner string

	// RequestID is the ID of the request: a repeat gets the first answer as long as the attempt
	// runs. Two callers with one ID would both do the work. Empty: a new ID. DoOnce ignores it.
	RequestID string

	// Durability to wait for. The default is [Journaled].
	Durability Durability
}

// BeginEffect asks whether to do the work of an effect, and records the attempt. Do the work only
// if Run of the answer is true, and then report its outcome with [Client.CompleteEffect] or
// [Client.FailEffect]. [DoOnce] does all of this. Options may be nil.
//
// Errors: [ErrEffectInputChanged] if the effect was begun with another input, [ErrNotFound] if the
// checkpoint is not stored.
func (c *Client) BeginEffect(
	ctx context.Context, threadID, key string, options *EffectOptions,
) (*tuskpointv1.BeginEffectResponse, error) {
	given := valueOf(options)
	request := &tuskpointv1.BeginEffectRequest{
		ThreadId:     threadID,
		Key:          key,
		Name:         given.Name,
		InputDigest:  given.InputDigest,
		CheckpointId: given.CheckpointID,
		CheckpointNs: given.Namespace,
		LeaseId:      given.LeaseID,
		Owner:        given.Owner,
		RequestId:    given.RequestID,
		Durability:   given.Durability,
	}
	if given.LeaseID == "" {
		request.LeaseId = c.held.of(threadID)
	}
	if given.Timeout != 0 {
		request.Timeout = durationpb.New(given.Timeout)
	}
	if given.RetryUnknown {
		request.OnUnknown = tuskpointv1.OnUnknown_ON_UNKNOWN_RETRY
	}
	return c.effects.BeginEffect(ctx, request)
}

// CompleteEffect records that the work of an attempt is done, and returns the effect with its
// recorded result; attempt is the effect as [Client.BeginEffect] returned it. The report of any
// attempt counts, however late, and the first reported result stays. The result is bytes, or a value
// that JSON can express; nil means no result. Options may be nil.
//
// Errors: [ErrNotFound] if the effect does not exist, [ErrInvalidRequest] if the result cannot be
// written as JSON, [ErrResourceExhausted] if the result is too large: record a reference to it
// instead.
func (c *Client) CompleteEffect(
	ctx context.Context, attempt *tuskpointv1.Effect, result any, options *ChangeOptions,
) (*tuskpointv1.Effect, error) {
	value, err := resultValue(result)
	if err != nil {
		return nil, err
	}
	answer, err := c.effects.CompleteEffect(ctx, &tuskpointv1.CompleteEffectRequest{
		ThreadId:       attempt.GetThreadId(),
		Key:            attempt.GetKey(),
		IdempotencyKey: attempt.GetIdempotencyKey(),
		Result:         value,
		Durability:     valueOf(options).Durability,
	})
	return answer.GetEffect(), err
}

// Outcome is how an attempt of an effect failed.
type Outcome = tuskpointv1.AttemptOutcome

const (
	// OutcomeNotDone: the work was not done, and may be tried again.
	OutcomeNotDone = tuskpointv1.AttemptOutcome_ATTEMPT_OUTCOME_NOT_DONE

	// OutcomeRefused: the work was not done, and another attempt makes no sense.
	OutcomeRefused = tuskpointv1.AttemptOutcome_ATTEMPT_OUTCOME_REFUSED

	// OutcomeUnknown: the work may be done. A timeout of the outside world has this outcome.
	OutcomeUnknown = tuskpointv1.AttemptOutcome_ATTEMPT_OUTCOME_UNKNOWN
)

// FailEffect records how an attempt failed, and returns the effect; attempt is the effect as
// [Client.BeginEffect] returned it. The problem is for people, and may be empty. Options may be
// nil.
//
// Errors: [ErrNotFound] if the effect or the attempt does not exist.
func (c *Client) FailEffect(
	ctx context.Context, attempt *tuskpointv1.Effect, outcome Outcome, problem string,
	options *ChangeOptions,
) (*tuskpointv1.Effect, error) {
	answer, err := c.effects.FailEffect(ctx, &tuskpointv1.FailEffectRequest{
		ThreadId:       attempt.GetThreadId(),
		Key:            attempt.GetKey(),
		Attempt:        attempt.GetAttempt(),
		IdempotencyKey: attempt.GetIdempotencyKey(),
		Outcome:        outcome,
		Error:          cut(problem, maxProblemBytes),
		Durability:     valueOf(options).Durability,
	})
	return answer.GetEffect(), err
}

// Decision is what [Client.ResolveEffect] decides.
type Decision struct {
	// Done is whether the work was done. Work that was not done may be tried again.
	Done bool

	// Result of the work if it was done: bytes, or a value that JSON can express; nil means no
	// result.
	Result any

	// ResolvedBy is who decided, for people.
	ResolvedBy string

	// Durability to wait for. The default is [Journaled].
	Durability Durability
}

// ResolveEffect decides an unknown effect, and returns the effect; unknown is the effect as
// [Client.GetEffect] or [Client.ListEffects] returned it. The decision holds for its attempt, and
// cannot meet a later attempt. A repeat of the decision changes nothing.
//
// Errors: [ErrEffectNotUnknown] if the effect is not unknown or a later attempt has begun,
// [ErrNotFound] if the effect or the attempt does not exist.
func (c *Client) ResolveEffect(
	ctx context.Context, unknown *tuskpointv1.Effect, decision Decision,
) (*tuskpointv1.Effect, error) {
	value, err := resultValue(decision.Result)
	if err != nil {
		return nil, err
	}
	answer, err := c.effects.ResolveEffect(ctx, &tuskpointv1.ResolveEffectRequest{
		ThreadId:   unknown.GetThreadId(),
		Key:        unknown.GetKey(),
		Attempt:    unknown.GetAttempt(),
		Done:       decision.Done,
		Result:     value,
		ResolvedBy: decision.ResolvedBy,
		Durability: decision.Durability,
	})
	return answer.GetEffect(), err
}

// GetEffect returns an effect with its result as it was recorded.
//
// Errors: [ErrNotFound] if the effect or the thread does not exist.
func (c *Client) GetEffect(
	ctx context.Context, threadID, key string,
) (*tuskpointv1.Effect, error) {
	answer, err := c.effects.GetEffect(ctx, &tuskpointv1.GetEffectRequest{ThreadId: threadID, Key: key})
	return answer.GetEffect(), err
}

// ListEffects yields the effects of a thread without their results, the last changed first; pages
// are fetched as needed. States select effects; none means all. The sequence ends with the first
// error, such as [ErrNotFound] if the thread does not exist.
func (c *Client) ListEffects(
	ctx context.Context, threadID string, states ...tuskpointv1.EffectState,
) iter.Seq2[*tuskpointv1.Effect, error] {
	return pages(func(token string) ([]*tuskpointv1.Effect, string, error) {
		page, err := c.effects.ListEffects(ctx, &tuskpointv1.ListEffectsRequest{
			ThreadId: threadID, States: states, PageSize: batch, PageToken: token,
		})
		return page.GetEffects(), page.GetNextPageToken(), err
	})
}

// InputDigest returns the digest of the input of an effect: SHA-256 over "json", a zero byte and
// the canonical JSON of the input. Canonical JSON follows RFC 8785, but a number of an integer type
// has all its digits, and keys are in the order of their code points. The clients in all languages
// return the same digest for equal values.
//
// Errors: [ErrInvalidRequest] if the input cannot be written as JSON, or if a number that is not an
// integer is outside the range of float64.
func InputDigest(input any) ([]byte, error) {
	text, err := encodeJSON("input", input)
	if err != nil {
		return nil, err
	}
	// Structs become maps, whose keys are written in order.
	var plain any
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&plain); err != nil {
		return nil, invalidField("input", "it cannot be written as JSON: "+err.Error())
	}
	if plain, err = canonical(plain); err != nil {
		return nil, invalidField("input", err.Error())
	}
	if text, err = encodeJSON("input", plain); err != nil {
		return nil, err
	}
	digest := sha256.Sum256([]byte("json\x00" + unescaped.Replace(string(text))))
	return digest[:], nil
}

// canonical returns decoded JSON with canonical numbers.
func canonical(value any) (any, error) {
	var err error
	switch value := value.(type) {
	case json.Number:
		return canonicalNumber(value)
	case []any:
		for position := range value {
			if value[position], err = canonical(value[position]); err != nil {
				return nil, err
			}
		}
	case map[string]any:
		for key := range value {
			if value[key], err = canonical(value[key]); err != nil {
				return nil, err
			}
		}
	}
	return value, nil
}

// canonicalNumber returns an integer with its digits, and another number as ECMAScript and
// encoding/json write it.
func canonicalNumber(number json.Number) (any, error) {
	if !strings.ContainsAny(number.String(), ".eE") && number != "-0" {
		return number, nil
	}
	value, err := number.Float64()
	if err != nil {
		return nil, fmt.Errorf("the number %s is outside the range of float64", number)
	}
	if value == 0 {
		return 0, nil // and not "-0"
	}
	return value, nil
}

// unescaped writes the two separators of lines, which only Go escapes, as they are. A pair of
// backslashes comes first, so that an escaped backslash before "u2028" stays.
var unescaped = strings.NewReplacer(`\\`, `\\`, `\u2028`, "\u2028", `\u2029`, "\u2029")

// resultValue returns the message of a result; nil for no result.
func resultValue(result any) (*tuskpointv1.Value, error) {
	switch given := result.(type) {
	case nil:
		return nil, nil
	case []byte:
		return &tuskpointv1.Value{Type: "bytes", Data: given}, nil
	}
	text, err := encodeJSON("result", result)
	if err != nil {
		return nil, err
	}
	return &tuskpointv1.Value{Type: "json", Data: text}, nil
}

// decodeResult stores the result of an effect in the value that into points to: bytes in a []byte,
// JSON as [encoding/json] does. Without a result it stores nothing.
func decodeResult(effect *tuskpointv1.Effect, into any) error {
	result := effect.GetResult()
	switch kind := result.GetType(); kind {
	case "":
		return nil
	case "bytes":
		switch target := into.(type) {
		case *[]byte:
			*target = result.GetData()
			return nil
		case *any:
			*target = result.GetData()
			return nil
		}
		return unreadableResult(effect, fmt.Sprintf("is bytes, not %T", into))
	case "json", "null":
		text := result.GetData()
		if kind == "null" {
			text = []byte("null")
		}
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.UseNumber()
		if err := decoder.Decode(into); err != nil {
			failure := unreadableResult(effect, "does not fit the type of the caller: "+err.Error())
			failure.cause = err
			return failure
		}
		return nil
	default:
		return unreadableResult(effect, fmt.Sprintf("is of type %q, which only the framework that "+
			"saved it can read; take its bytes from GetEffect", kind))
	}
}

// cut returns a text without NUL that has at most some bytes of UTF-8.
func cut(text string, size int) string {
	text = strings.ReplaceAll(text, "\x00", " ")
	return strings.ToValidUTF8(text[:min(len(text), size)], "")
}
