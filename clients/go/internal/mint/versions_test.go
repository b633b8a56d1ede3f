package mint

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"tuskpoint.dev/go/tuskpoint/tuskpointv1"
)

func textVersion(text string) *tuskpointv1.Version {
	return &tuskpointv1.Version{Kind: &tuskpointv1.Version_Text{Text: text}}
}

func integerVersion(number int64) *tuskpointv1.Version {
	return &tuskpointv1.Version{Kind: &tuskpointv1.Version_Integer{Integer: number}}
}

func numberVersion(number float64) *tuskpointv1.Version {
	return &tuskpointv1.Version{Kind: &tuskpointv1.Version_Number{Number: number}}
}

func TestVersionsAreCountedUpInTheirKind(t *testing.T) {
	const first = "00000000000000000000000000000001.0000000000000000"
	for _, one := range []struct {
		all      []*tuskpointv1.Version
		expected *tuskpointv1.Version
	}{
		{nil, textVersion(first)},
		{[]*tuskpointv1.Version{{}}, textVersion(first)},
		{[]*tuskpointv1.Version{integerVersion(3), integerVersion(1 << 40)}, integerVersion(1<<40 + 1)},
		{[]*tuskpointv1.Version{numberVersion(2.5), nil, numberVersion(1)}, numberVersion(3)},
		{[]*tuskpointv1.Version{textVersion(first), textVersion("00000000000000000000000000000009.1234")},
			textVersion("00000000000000000000000000000010.0000000000000000")},
	} {
		version, err := Version(one.all)
		if err != nil || !proto.Equal(version, one.expected) {
			t.Errorf("after %v comes %s, %v", one.all, version, err)
		}
	}
	for _, all := range [][]*tuskpointv1.Version{
		{textVersion("a")}, {textVersion(first), integerVersion(1)},
	} {
		if version, err := Version(all); err == nil {
			t.Errorf("after %v comes %s, %v", all, version, err)
		}
	}
}
