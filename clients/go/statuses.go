package tuskpoint

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"

	targets "tuskpoint.dev/go/tuskpoint/internal/target"
	"tuskpoint.dev/go/tuskpoint/tuskpointv1"
)

const (
	errorDomain  = "tuskpoint.dev"
	reasonPrefix = "ERROR_REASON_"
	missingValue = "VALUE" // type of the precondition that a channel's content is stored
)

// adviceOf has the advice for the user of this client, by reason.
var adviceOf = map[string]string{
	"CREDENTIAL_INVALID": "the client's token is set by WithToken or WithTokenFile, by " +
		"TUSKPOINT_TOKEN, or by the file that TUSKPOINT_TOKEN_FILE names",
	"SCOPE_MISSING": "give the client a token that has it",
}

// fromStatus returns the error of a failed call.
//
// The service gives a reason with every error. An error without a reason comes from gRPC, on either
// side, or from an intermediary; its message is built here.
func fromStatus(failed *status.Status, target string) *Error {
	failure := &Error{Status: failed.Code(), Message: failed.Message(), status: failed}
	for _, detail := range failed.Details() {
		switch typed := detail.(type) {
		case *errdetails.ErrorInfo:
			failure.Reason, failure.Metadata = typed.GetReason(), typed.GetMetadata()
		case *errdetails.RetryInfo:
			failure.RetryAfter = typed.GetRetryDelay().AsDuration()
		case *errdetails.BadRequest:
			for _, violation := range typed.GetFieldViolations() {
				failure.refuse(violation.GetField(), violation.GetDescription())
			}
		case *errdetails.PreconditionFailure:
			for _, violation := range typed.GetViolations() {
				if violation.GetType() == missingValue {
					failure.refuse(violation.GetSubject(), violation.GetDescription())
				}
			}
		}
	}
	if failure.Reason == "" {
		failure.Message = explain(failed, target)
	} else if advice, is := adviceOf[failure.Reason]; is {
		failure.Message += " (" + advice + ")"
	}
	return failure.settled()
}

// statusOf returns the status of a call that failed with the error in an answer.
func statusOf(answer *tuskpointv1.CallError) *status.Status {
	info := &errdetails.ErrorInfo{
		Domain:   errorDomain,
		Reason:   strings.TrimPrefix(answer.GetReason().String(), reasonPrefix),
		Metadata: answer.GetMetadata(),
	}
	details := []protoadapt.MessageV1{info}
	if answer.GetRetryAfter() != nil {
		details = append(details, &errdetails.RetryInfo{RetryDelay: answer.GetRetryAfter()})
	}
	if refused := answer.GetFieldViolations(); len(refused) > 0 {
		if answer.GetReason() == tuskpointv1.ErrorReason_ERROR_REASON_VALUES_MISSING {
			details = append(details, missingValues(refused))
		} else {
			details = append(details, refusedFields(refused))
		}
	}
	bare := status.New(codes.Code(answer.GetCode()), answer.GetMessage())
	if answer.GetReason() == tuskpointv1.ErrorReason_ERROR_REASON_UNSPECIFIED {
		return bare
	}
	full, err := bare.WithDetails(details...)
	if err != nil {
		return bare // the error has the status OK
	}
	return full
}

func missingValues(channels []*tuskpointv1.FieldViolation) *errdetails.PreconditionFailure {
	failure := &errdetails.PreconditionFailure{}
	for _, channel := range channels {
		failure.Violations = append(failure.Violations, &errdetails.PreconditionFailure_Violation{
			Type: missingValue, Subject: channel.GetField(), Description: channel.GetDescription(),
		})
	}
	return failure
}

func refusedFields(fields []*tuskpointv1.FieldViolation) *errdetails.BadRequest {
	refused := &errdetails.BadRequest{}
	for _, field := range fields {
		refused.FieldViolations = append(refused.FieldViolations, &errdetails.BadRequest_FieldViolation{
			Field: field.GetField(), Description: field.GetDescription(),
		})
	}
	return refused
}

func (e *Error) refuse(field, problem string) {
	e.Violations = append(e.Violations, Violation{Field: field, Problem: problem})
}

// settled returns the error with its kind, and with its violations in the message.
func (e *Error) settled() *Error {
	e.kind = kindOf(e.Status, e.Reason)
	if e.kind == invalidRequest && len(e.Violations) > 0 {
		named := make([]string, len(e.Violations))
		for i, violation := range e.Violations {
			named[i] = violation.Field + ": " + violation.Problem
		}
		if all := strings.Join(named, "; "); !strings.Contains(e.Message, all) {
			e.Message += " (" + all + ")"
		}
	}
	return e
}

// cancelledBy returns the error for a call that its caller cancelled.
func cancelledBy(ctx context.Context, target string) *Error {
	cause := context.Cause(ctx)
	if !errors.Is(cause, context.Canceled) {
		cause = errors.Join(context.Canceled, cause)
	}
	return &Error{
		Status:  codes.Canceled,
		Message: fmt.Sprintf("the call to %s was cancelled before it ended", target),
		kind:    cancelled,
		cause:   cause,
	}
}

// closedClient returns the error for a call on a closed client.
func closedClient() *Error {
	return &Error{
		Status:  codes.FailedPrecondition,
		Message: "this client is closed: create another one with Dial",
		kind:    clientClosed,
		final:   true,
	}
}

// explain returns the message for a status that does not come from the service's own table.
func explain(failed *status.Status, target string) string {
	text := failed.Message()
	switch failed.Code() {
	case codes.Unavailable:
		return fmt.Sprintf("no TuskPoint server answers at %s: %s, set the right target in the call to "+
			"Dial or in TUSKPOINT_TARGET, and check that both sides use TLS or neither does, and that the "+
			"client has a certificate if the server asks for one (%s)", target, remedy(target), text)
	case codes.ResourceExhausted:
		return fmt.Sprintf("a message is larger than the sender or the receiver allows: save less in "+
			"metadata and identifiers; values of any size are sent in chunks (%s)", text)
	case codes.DeadlineExceeded:
		return fmt.Sprintf("%s did not answer in time; what it journaled by then stays, and the "+
			"same call may be repeated (%s)", target, text)
	case codes.Unimplemented:
		return fmt.Sprintf("%s is not a TuskPoint server, or lacks this call (%s)", target, text)
	case codes.Canceled:
		return fmt.Sprintf("the call to %s was dropped by the other side (%s)", target, text)
	case codes.Unauthenticated:
		return fmt.Sprintf("the call to %s has no usable credential (%s)", target, text)
	}
	return fmt.Sprintf("%s answered %s: %s", target, statusName(failed.Code()), text)
}

// remedy returns advice for a target without a server that answers.
func remedy(target string) string {
	if !targets.IsLoopback(target) {
		return "check that it runs and can be reached from here"
	}
	_, port, err := net.SplitHostPort(target)
	if err != nil || targets.IsSeveral(target) || port == defaultPort {
		return "start one with `tuskpoint-server dev`"
	}
	return fmt.Sprintf("start one with `tuskpoint-server dev --port %s`", port)
}

func decodeBase64(text string) []byte {
	decoded, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(decoded) == 0 {
		return nil
	}
	return decoded
}
