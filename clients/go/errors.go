package tuskpoint

import (
	"context"
	"fmt"
	"time"

	rpccode "google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"tuskpoint.dev/go/tuskpoint/internal/retry"
	"tuskpoint.dev/go/tuskpoint/tuskpointv1"
)

// kind is a kind of error: one for each reaction of a caller. The pointer to a kind is its
// sentinel.
type kind struct {
	text   string
	parent *kind
}

func (k *kind) Error() string { return "tuskpoint: " + k.text }

var (
	invalidRequest     = &kind{text: "the request can never succeed as it is"}
	invalidDescriptor  = &kind{text: "this is not the descriptor of a hand-off", parent: invalidRequest}
	descriptorMismatch = &kind{text: "the descriptor names a different checkpoint than its blob holds",
		parent: invalidRequest}
	cursorCompacted = &kind{text: "the changes after the cursor are no longer stored",
		parent: invalidRequest}
	notFound           = &kind{text: "not found"}
	alreadyExists      = &kind{text: "already exists"}
	conflict           = &kind{text: "the thread has changed since it was read"}
	threadBusy         = &kind{text: "another driver has the lease of the thread", parent: conflict}
	threadDeleted      = &kind{text: "the thread was deleted"}
	preconditionFailed = &kind{text: "the service is not in the state that the call needs"}
	leaseLost          = &kind{text: "the lease of the thread has ended", parent: preconditionFailed}
	effectUnknown      = &kind{text: "it is unknown whether the work was done", parent: preconditionFailed}
	effectRunning      = &kind{text: "another attempt does the work", parent: preconditionFailed}
	effectNotDone      = &kind{text: "the work was not done", parent: preconditionFailed}
	effectRefused      = &kind{text: "the work was refused", parent: preconditionFailed}
	effectInputChanged = &kind{text: "the effect was begun with another input",
		parent: preconditionFailed}
	effectNotUnknown  = &kind{text: "the effect is not unknown", parent: preconditionFailed}
	effectNotRecorded = &kind{text: "the thread only answers recorded effects",
		parent: preconditionFailed}
	valuesMissing = &kind{text: "the service does not hold content that the request refers to"}
	dataLoss      = &kind{text: "stored bytes are gone or not what was recorded"}
	hashMismatch  = &kind{text: "stored bytes do not have the hash they are trusted by",
		parent: dataLoss}
	resourceExhausted = &kind{text: "the request is too large, or the server is at capacity"}
	unavailable       = &kind{text: "the service, or the store behind it, does not answer"}
	deadlineExceeded  = &kind{text: "the deadline of the call passed"}
	unauthenticated   = &kind{text: "the credential is not valid"}
	permissionDenied  = &kind{text: "the credential does not allow the call"}
	unimplemented     = &kind{text: "the server does not implement the call"}
	serverDefect      = &kind{text: "a defect of the server"}
	unreadable        = &kind{text: "a value has an encoding that only its framework can read"}
	clientClosed      = &kind{text: "the client is closed"}
	cancelled         = &kind{text: "the caller cancelled the call"}
)

// The kinds of an [*Error], for [errors.Is]: one for each reaction of a caller.
var (
	// ErrInvalidRequest: the request can never succeed unchanged. Change the request;
	// Error.Violations names the fields.
	ErrInvalidRequest error = invalidRequest

	// ErrInvalidDescriptor: the value is not the descriptor of a hand-off. Pass the whole,
	// unchanged descriptor. The error is also ErrInvalidRequest.
	ErrInvalidDescriptor error = invalidDescriptor

	// ErrDescriptorMismatch: the descriptor names a checkpoint that its blob does not contain. Ask
	// for the original descriptor. The error is also ErrInvalidRequest.
	ErrDescriptorMismatch error = descriptorMismatch

	// ErrCursorCompacted: the events after the cursor of a watch were compacted. Replay, then watch
	// from [Error.OldestCursor]. The error is also ErrInvalidRequest.
	ErrCursorCompacted error = cursorCompacted

	// ErrNotFound: the named thread, checkpoint, snapshot or blob does not exist.
	ErrNotFound error = notFound

	// ErrAlreadyExists: the object to create exists. Choose another name.
	ErrAlreadyExists error = alreadyExists

	// ErrConflict: the thread has changed since it was read. Load its head and decide again.
	ErrConflict error = conflict

	// ErrThreadBusy: another driver has the lease of the thread. Wait for its end, or take the
	// thread over. The error is also ErrConflict.
	ErrThreadBusy error = threadBusy

	// ErrThreadDeleted: the thread was deleted. Restart the thread with a checkpoint without
	// parent.
	ErrThreadDeleted error = threadDeleted

	// ErrPreconditionFailed: the service is not in the state that the call needs.
	// Error.Reason names the state.
	ErrPreconditionFailed error = preconditionFailed

	// ErrLeaseLost: the lease of the thread has ended. Stop the run: another driver may have begun.
	// The error is also ErrPreconditionFailed.
	ErrLeaseLost error = leaseLost

	// ErrEffectUnknown: an attempt of the effect began and did not report. Find out whether the work
	// was done, then decide with [Client.ResolveEffect]. The error is also ErrPreconditionFailed.
	ErrEffectUnknown error = effectUnknown

	// ErrEffectRunning: another attempt runs and did not report in the time to wait. Wait longer.
	// The error is also ErrPreconditionFailed.
	ErrEffectRunning error = effectRunning

	// ErrEffectNotDone: the attempt reported that the work was not done. Try again. The error is
	// also ErrPreconditionFailed.
	ErrEffectNotDone error = effectNotDone

	// ErrEffectRefused: the attempt reported that the work was refused. Another attempt makes no
	// sense. The error is also ErrPreconditionFailed.
	ErrEffectRefused error = effectRefused

	// ErrEffectInputChanged: the effect was begun with another input. Use another key for other
	// work. The error is also ErrPreconditionFailed.
	ErrEffectInputChanged error = effectInputChanged

	// ErrEffectNotUnknown: the effect is not unknown, or a later attempt has begun. Read the effect
	// again. The error is also ErrPreconditionFailed.
	ErrEffectNotUnknown error = effectNotUnknown

	// ErrEffectNotRecorded: the thread only answers recorded effects, and none matches. Do not do
	// the work. The error is also ErrPreconditionFailed.
	ErrEffectNotRecorded error = effectNotRecorded

	// ErrValuesMissing: the service does not have content that the request refers to. Send the
	// content inline; Error.Violations names the channels. [Client.Save] does so by itself.
	ErrValuesMissing error = valuesMissing

	// ErrDataLoss: stored bytes are lost or do not match the record. Nothing was read or written.
	ErrDataLoss error = dataLoss

	// ErrHashMismatch: stored bytes do not match their recorded hash. Never use the bytes.
	// Error.Metadata has blob_id, expected and actual. The error is also ErrDataLoss.
	ErrHashMismatch error = hashMismatch

	// ErrResourceExhausted: the request is too large, or the server is at capacity. Send less, or
	// wait for Error.RetryAfter if it is set.
	ErrResourceExhausted error = resourceExhausted

	// ErrUnavailable: the service, or the store behind it, does not answer. Retry later.
	ErrUnavailable error = unavailable

	// ErrDeadlineExceeded: the deadline of the call passed. It is unknown whether the change was
	// applied. The error is also context.DeadlineExceeded.
	ErrDeadlineExceeded error = deadlineExceeded

	// ErrUnauthenticated: the credential is missing, or unknown to the service.
	ErrUnauthenticated error = unauthenticated

	// ErrPermissionDenied: the credential does not allow the call. Error.Metadata has the missing
	// scope.
	ErrPermissionDenied error = permissionDenied

	// ErrUnimplemented: the server does not implement the call. Use a newer server.
	ErrUnimplemented error = unimplemented

	// ErrServer: the server has a defect, or its answer breaks the contract. Report it.
	ErrServer error = serverDefect

	// ErrUnreadable: the value has an encoding that only the framework which saved it can read.
	// Read the value with [ViewJSON].
	ErrUnreadable error = unreadable

	// ErrClosed: the client is closed. Dial another client.
	ErrClosed error = clientClosed
)

// Violation is a refused field of a request.
type Violation struct {
	// Field is the path of the field in the request, such as "checkpoint.ref.thread_id"; with
	// [ErrValuesMissing], the channel.
	Field string

	// Problem is the problem, and the accepted values.
	Problem string
}

// Error is a failed call, or a call that could not be made.
type Error struct {
	// Status is the canonical gRPC status.
	Status codes.Code

	// Reason is the name of the contract's ErrorReason without its prefix, such as
	// "CHECKPOINT_NOT_FOUND"; empty if the service gave no reason.
	Reason string

	// Message is text for people: what happened and what to do.
	Message string

	// Metadata has the dynamic parts of the message.
	Metadata map[string]string

	// Violations are the refused fields, if the service named any.
	Violations []Violation

	// RetryAfter is the time after which the service asks for a retry; 0 if it does not ask for
	// one.
	RetryAfter time.Duration

	// Effect is the recorded effect, if [DoOnce] failed with [ErrEffectUnknown],
	// [ErrEffectRunning], [ErrEffectNotDone] or [ErrEffectRefused]; nil otherwise.
	Effect *tuskpointv1.Effect

	kind   *kind
	cause  error
	status *status.Status // as received; nil if the error was created here
	final  bool           // a retry cannot help, whatever the status
}

// Error returns the message, the status and the reason.
func (e *Error) Error() string {
	name := statusName(e.Status)
	if e.Reason != "" {
		name += ", " + e.Reason
	}
	return fmt.Sprintf("tuskpoint: %s (%s)", e.Message, name)
}

// Is reports whether the error is one of the package's sentinels; see [errors.Is].
func (e *Error) Is(target error) bool {
	for candidate := e.kind; candidate != nil; candidate = candidate.parent {
		if error(candidate) == target {
			return true
		}
	}
	return target == context.DeadlineExceeded && e.kind == deadlineExceeded
}

// Unwrap returns the cause of the error on this side, such as context.Canceled; nil without a
// cause.
func (e *Error) Unwrap() error { return e.cause }

// GRPCStatus returns the status, so that the functions of gRPC's status package understand the
// error; the status has the details that the service sent.
func (e *Error) GRPCStatus() *status.Status {
	if e.status != nil {
		return e.status
	}
	return status.New(e.Status, e.Message)
}

// retrying returns the parts of the error that decide about another attempt.
func (e *Error) retrying() retry.Failure {
	return retry.Failure{
		Status: e.Status, Reason: e.Reason, After: e.RetryAfter, Final: e.final || e.kind == cancelled,
	}
}

// OldestCursor returns the oldest cursor that a watch can start with, if the error is
// [ErrCursorCompacted] and the service named it; nil otherwise.
func (e *Error) OldestCursor() []byte { return decodeBase64(e.Metadata["oldest_cursor"]) }

func statusName(code codes.Code) string { return rpccode.Code(code).String() }

// kindOfStatus has the kind of each canonical status except OK.
var kindOfStatus = map[codes.Code]*kind{
	codes.Canceled:           unavailable,
	codes.Unknown:            serverDefect,
	codes.InvalidArgument:    invalidRequest,
	codes.DeadlineExceeded:   deadlineExceeded,
	codes.NotFound:           notFound,
	codes.AlreadyExists:      alreadyExists,
	codes.PermissionDenied:   permissionDenied,
	codes.ResourceExhausted:  resourceExhausted,
	codes.FailedPrecondition: preconditionFailed,
	codes.Aborted:            conflict,
	codes.OutOfRange:         invalidRequest,
	codes.Unimplemented:      unimplemented,
	codes.Internal:           serverDefect,
	codes.Unavailable:        unavailable,
	codes.DataLoss:           dataLoss,
	codes.Unauthenticated:    unauthenticated,
}

// kindOfReason has the kinds of the reasons that are more specific than their status.
var kindOfReason = map[string]*kind{
	"THREAD_DELETED":       threadDeleted,
	"THREAD_BUSY":          threadBusy,
	"LEASE_LOST":           leaseLost,
	"EFFECT_INPUT_CHANGED": effectInputChanged,
	"EFFECT_NOT_UNKNOWN":   effectNotUnknown,
	"EFFECT_NOT_RECORDED":  effectNotRecorded,
	"VALUES_MISSING":       valuesMissing,
	"CHECKPOINT_MISSING":   notFound,
	"BLOB_HASH_MISMATCH":   hashMismatch,
	"CURSOR_COMPACTED":     cursorCompacted,
	"DESCRIPTOR_MISMATCH":  descriptorMismatch,
}

func kindOf(code codes.Code, reason string) *kind {
	if byReason := kindOfReason[reason]; byReason != nil {
		return byReason
	}
	if byStatus := kindOfStatus[code]; byStatus != nil {
		return byStatus
	}
	return serverDefect
}

// invalidField returns the error for an argument that is never valid.
func invalidField(field, problem string) *Error {
	return &Error{
		Status:     codes.InvalidArgument,
		Reason:     "INVALID_FIELD",
		Message:    field + ": " + problem,
		Metadata:   map[string]string{"field": field},
		Violations: []Violation{{Field: field, Problem: problem}},
		kind:       invalidRequest,
	}
}

// brokenContract returns the error for an answer that breaks the contract.
func brokenContract(what string) *Error {
	return &Error{
		Status:  codes.Internal,
		Message: "the server's answer breaks the contract: " + what + "; nothing of it was used",
		kind:    serverDefect,
	}
}
