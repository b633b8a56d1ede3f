package tuskpoint

import (
	"fmt"
	"testing"
)

func TestWhatWasNotUsedForLongestIsForgotten(t *testing.T) {
	var remembered memory
	threads := rememberedThreads + 10
	for number := range threads {
		remembered.put(place{fmt.Sprint(number), ""}, known{id: fmt.Sprint(number)})
		if _, has := remembered.get(place{"0", ""}); !has {
			t.Fatal("what is used all the time was forgotten")
		}
	}
	if _, has := remembered.get(place{"1", ""}); has || len(remembered.entries) != rememberedThreads {
		t.Errorf("%d are remembered", len(remembered.entries))
	}
	remembered.put(place{"0", "inner"}, known{})
	remembered.forget("0")
	for _, namespace := range []string{"", "inner"} {
		if _, has := remembered.get(place{"0", namespace}); has {
			t.Errorf("namespace %q was not forgotten", namespace)
		}
	}
}
