package tuskpoint

import (
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

// Checkpoint IDs are UUIDs of version 6 (RFC 9562, section 5.6), whose order as texts is their
// order in time. A client mints the ID of what it saves, so that a save whose answer was lost can
// be sent again without being made twice.

// gregorianOffset is the time between 1582-10-15 and the Unix epoch, in units of 100 ns.
const gregorianOffset = 0x01B21DD213814000

// newCheckpointID returns a UUIDv6 of this moment that is lexically greater than another ID; that
// may be empty.
func newCheckpointID(above string) (string, error) {
	return mint(uint64(time.Now().UnixNano()/100)+gregorianOffset, rand.Uint64(), above)
}

// mint returns the UUIDv6 of a moment, or the next one above another ID if that is later. Ticks are
// units of 100 ns since 1582-10-15; 62 bits of entropy are used.
func mint(ticks, entropy uint64, above string) (string, error) {
	for _, moment := range []uint64{ticks, max(ticks, ticksOf(above)+1)} {
		if minted := uuid6(moment, entropy); minted > above {
			return minted, nil
		}
	}
	return "", invalidField("checkpoint_id", fmt.Sprintf("no UUIDv6 sorts after %q: this thread has "+
		"IDs of its own, so name one", above))
}

func uuid6(ticks, entropy uint64) string {
	ticks &= 1<<60 - 1
	high := ticks>>12<<16 | 6<<12 | ticks&0xFFF
	low := 0b10<<62 | entropy&(1<<62-1)
	return fmt.Sprintf("%08x-%04x-%04x-%04x-%012x",
		high>>32, high>>16&0xFFFF, high&0xFFFF, low>>48, low&(1<<48-1))
}

// ticksOf returns the time of a UUIDv6; 0 if the ID is none.
func ticksOf(id string) uint64 {
	digits := strings.ReplaceAll(id, "-", "")
	if decoded, err := hex.DecodeString(digits); err != nil || len(decoded) != 16 {
		return 0
	}
	high, err := strconv.ParseUint(digits[:16], 16, 64)
	if err != nil {
		return 0
	}
	return high>>16<<12 | high&0xFFF
}
