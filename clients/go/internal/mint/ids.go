// Package mint generates the parts of a new checkpoint that depend on its parent: an ID and
// versions.
package mint

import (
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Checkpoint IDs are UUIDs of version 6 (RFC 9562, section 5.6), whose order as texts is their
// order in time. A client mints the ID of each checkpoint that it saves, so that a save whose
// answer was lost can be sent again without a duplicate. If no UUIDv6 sorts after a caller's own
// ID, such as cp-001, the next ID is that ID, a dash and a UUIDv6.

// gregorianOffset is the time between 1582-10-15 and the Unix epoch, in units of 100 ns.
const gregorianOffset = 0x01B21DD213814000

const maxIDBytes = 128

var uuid6Behind = regexp.MustCompile(
	`(?s)^(.*-)([0-9a-f]{8}-[0-9a-f]{4}-6[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12})$`)

// ID returns a checkpoint ID of this moment that is lexically greater than above, which may be
// empty.
func ID(above string) (string, error) {
	return idAt(uint64(time.Now().UnixNano()/100)+gregorianOffset, rand.Uint64(), above)
}

// idAt returns the ID of a moment, or the next ID after above if that is later. Ticks are units of
// 100 ns since 1582-10-15; 62 bits of entropy are used.
func idAt(ticks, entropy uint64, above string) (string, error) {
	prefix, last := "", above
	if behind := uuid6Behind.FindStringSubmatch(above); behind != nil {
		prefix, last = behind[1], behind[2]
	}
	for _, minted := range []string{
		uuid6(ticks, entropy),
		uuid6(max(ticks, ticksOf(above)+1), entropy),
		prefix + uuid6(max(ticks, ticksOf(last)+1), entropy),
		above + "-" + uuid6(ticks, entropy),
	} {
		if minted > above && len(minted) <= maxIDBytes {
			return minted, nil
		}
	}
	return "", fmt.Errorf("no ID of at most %d bytes sorts after %q: set a checkpoint ID",
		maxIDBytes, above)
}

func uuid6(ticks, entropy uint64) string {
	ticks &= 1<<60 - 1
	high := ticks>>12<<16 | 6<<12 | ticks&0xFFF
	low := 0b10<<62 | entropy&(1<<62-1)
	return fmt.Sprintf("%08x-%04x-%04x-%04x-%012x",
		high>>32, high>>16&0xFFFF, high&0xFFFF, low>>48, low&(1<<48-1))
}

// ticksOf returns the time of a UUIDv6; 0 if the ID is not a UUIDv6.
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
