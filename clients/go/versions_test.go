package tuskpoint

import (
	"errors"
	"testing"

	"google.golang.org/protobuf/proto"

	"tuskpoint.dev/go/tuskpoint/tuskpointv1"
)

func textVersion(text string) held {
	return held{version: &tuskpointv1.Version{Kind: &tuskpointv1.Version_Text{Text: text}}}
}

func integerVersion(number int64) held {
	return held{version: &tuskpointv1.Version{Kind: &tuskpointv1.Version_Integer{Integer: number}}}
}

func numberVersion(number float64) held {
	return held{version: &tuskpointv1.Version{Kind: &tuskpointv1.Version_Number{Number: number}}}
}

func TestVersionsAreCountedUpInTheirKind(t *testing.T) {
	const first = "00000000000000000000000000000001.0000000000000000"
	for _, one := range []struct {
		all      []held
		expected held
	}{
		{nil, textVersion(first)},
		{[]held{{}}, textVersion(first)},
		{[]held{integerVersion(3), integerVersion(1 << 40)}, integerVersion(1<<40 + 1)},
		{[]held{numberVersion(2.5), {}, numberVersion(1)}, numberVersion(3)},
		{[]held{textVersion(first), textVersion("00000000000000000000000000000009.1234")},
			textVersion("00000000000000000000000000000010.0000000000000000")},
	} {
		version, err := nextVersion(one.all)
		if err != nil || !proto.Equal(version, one.expected.version) {
			t.Errorf("after %v comes %s, %v", one.all, version, err)
		}
	}
	for _, all := range [][]held{
		{textVersion("a")}, {textVersion(first), integerVersion(1)},
	} {
		if version, err := nextVersion(all); !errors.Is(err, ErrInvalidRequest) {
			t.Errorf("after %v comes %s, %v", all, version, err)
		}
	}
}
