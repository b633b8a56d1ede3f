package tuskpoint

import (
	"errors"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"tuskpoint.dev/go/tuskpoint/tuskpointv1"
)

func TestReasonsOfTheContractAreSpelledAsItDoes(t *testing.T) {
	for reason := range kindOfReason {
		if _, has := tuskpointv1.ErrorReason_value[reasonPrefix+reason]; !has {
			t.Errorf("the contract has no reason %s", reason)
		}
	}
}

func TestEveryStatusIsOneKind(t *testing.T) {
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		failure := fromStatus(status.New(code, "a message"), "example:1")
		if failure.kind == nil || failure.Status != code || status.Code(failure) != code {
			t.Errorf("%s is reported as %+v", code, failure)
		}
		if text := failure.Error(); !strings.Contains(text, "a message") ||
			!strings.Contains(text, statusName(code)) {
			t.Errorf("%s is put as %q", code, text)
		}
	}
}

func TestARefusedTokenSaysWhereTheTokenComesFrom(t *testing.T) {
	for reason, expected := range map[string]string{
		"CREDENTIAL_INVALID": "TUSKPOINT_TOKEN_FILE",
		"SCOPE_MISSING":      "a token that has it",
	} {
		refused, err := status.New(codes.Unauthenticated, "a message").WithDetails(&errdetails.ErrorInfo{Reason: reason})
		if err != nil {
			t.Fatal(err)
		}
		failure := fromStatus(refused, "example:1")
		if failure.Reason != reason || !strings.Contains(failure.Message, expected) ||
			!strings.HasPrefix(failure.Message, "a message (") {
			t.Errorf("%s is put as %q", reason, failure.Message)
		}
	}
}

func TestErrorsInsideStreamsAreTheSame(t *testing.T) {
	failure := fromStatus(statusOf(&tuskpointv1.CallError{
		Code: int32(codes.InvalidArgument), Reason: tuskpointv1.ErrorReason_ERROR_REASON_INVALID_FIELD,
		Message: "a field is wrong", Metadata: map[string]string{"field": "ref.thread_id"},
		FieldViolations: []*tuskpointv1.FieldViolation{{Field: "ref.thread_id", Description: "it is empty"}},
	}), "example:1")
	if !errors.Is(failure, ErrInvalidRequest) || failure.Reason != "INVALID_FIELD" ||
		len(failure.Violations) != 1 || !strings.Contains(failure.Error(), "ref.thread_id: it is empty") {
		t.Errorf("it is reported as %+v: %s", failure, failure)
	}
	if none := fromStatus(statusOf(&tuskpointv1.CallError{Code: int32(codes.Unavailable)}), ""); none.Reason != "" {
		t.Errorf("no reason is reported as %q", none.Reason)
	}
}

func TestTheOldestCursorIsRead(t *testing.T) {
	for text, expected := range map[string]string{"AQI=": "\x01\x02", "": "", "?": ""} {
		failure := &Error{Metadata: map[string]string{"oldest_cursor": text}}
		if got := failure.OldestCursor(); string(got) != expected {
			t.Errorf("%q is read as %q", text, got)
		}
	}
}
