package mint

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestIDsRiseWhateverTheClockSays(t *testing.T) {
	shape := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-6[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	var ids []string
	last := ""
	for _, ticks := range []uint64{1 << 59, 1<<59 + 1, 1 << 59, 5, 1<<59 + 0xFFF, 1<<60 - 3} {
		id, err := idAt(ticks, ticks*7919, last)
		if err != nil {
			t.Fatal(err)
		}
		if !shape.MatchString(id) {
			t.Errorf("%s is not a UUIDv6", id)
		}
		ids, last = append(ids, id), id
	}
	if !slices.IsSorted(ids) || len(slices.Compact(slices.Clone(ids))) != len(ids) {
		t.Errorf("the IDs do not rise: %v", ids)
	}
	if ticksOf(last) != 1<<60-3 {
		t.Errorf("the time of %s is read as %d", last, ticksOf(last))
	}
}

func TestIDsOfOthersAreFollowedIfThatIsPossible(t *testing.T) {
	if id, err := ID("0-first"); err != nil || id <= "0-first" {
		t.Errorf("after 0-first came %q, %v", id, err)
	}
	last := "cp-001"
	for range 3 {
		id, err := ID(last)
		if err != nil || id <= last || id >= "cp-002" || len(id) != len("cp-001")+37 {
			t.Errorf("after %q came %q, %v", last, id, err)
		}
		last = id
	}
	if _, err := ID(strings.Repeat("x", 92)); err == nil {
		t.Errorf("an ID that is too long to be followed is followed")
	}
}
