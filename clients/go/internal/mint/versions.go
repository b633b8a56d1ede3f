package mint

import (
	"errors"
	"fmt"
	"math/big"
	"strings"

	"tuskpoint.dev/go/tuskpoint/tuskpointv1"
)

// Version returns a version above all versions of a checkpoint, of the same kind. A checkpoint
// without versions starts with 1 as a text. Text versions count up in their leading number,
// zero-padded to the 32 digits that LangGraph writes.
func Version(all []*tuskpointv1.Version) (*tuskpointv1.Version, error) {
	var newest *tuskpointv1.Version
	for _, version := range all {
		if version.GetKind() == nil {
			continue
		}
		if newest != nil && kindOfVersion(newest) != kindOfVersion(version) {
			return nil, errUncountable
		}
		if newest == nil || isAbove(version, newest) {
			newest = version
		}
	}
	switch last := newest.GetKind().(type) {
	case *tuskpointv1.Version_Integer:
		return &tuskpointv1.Version{Kind: &tuskpointv1.Version_Integer{Integer: last.Integer + 1}}, nil
	case *tuskpointv1.Version_Number:
		next := float64(int64(last.Number) + 1)
		return &tuskpointv1.Version{Kind: &tuskpointv1.Version_Number{Number: next}}, nil
	case *tuskpointv1.Version_Text:
		return nextText(last.Text)
	}
	return nextText("0")
}

func nextText(last string) (*tuskpointv1.Version, error) {
	digits := last[:len(last)-len(strings.TrimLeft(last, "0123456789"))]
	number, isNumber := new(big.Int).SetString(digits, 10)
	if !isNumber {
		return nil, errUncountable
	}
	text := fmt.Sprintf("%032d.%016d", number.Add(number, big.NewInt(1)), 0)
	return &tuskpointv1.Version{Kind: &tuskpointv1.Version_Text{Text: text}}, nil
}

func kindOfVersion(version *tuskpointv1.Version) string { return fmt.Sprintf("%T", version.GetKind()) }

func isAbove(a, b *tuskpointv1.Version) bool {
	return a.GetInteger() > b.GetInteger() || a.GetNumber() > b.GetNumber() || a.GetText() > b.GetText()
}

var errUncountable = errors.New("its channel versions cannot be incremented; continue the thread with its " +
	"framework")
