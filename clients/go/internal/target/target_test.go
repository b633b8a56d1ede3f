package target

import "testing"

func TestTargetsOfThisMachine(t *testing.T) {
	for target, expected := range map[string]bool{
		"127.0.0.1:7390":         true,
		"127.9.9.9:1":            true,
		"localhost:7390":         true,
		"LOCALHOST:7390":         true,
		"[::1]:7390":             true,
		"dns:///localhost:7390":  true,
		"dns:localhost:7390":     true,
		"unix:///run/tuskpoint":  true,
		"unix-abstract:name":     true,
		"10.0.0.1:7390":          false,
		"[2001:db8::1]:7390":     false,
		"example:7390":           false,
		"dns:///example:7390":    false,
		"dns://8.8.8.8/a:1":      false,
		"localhost.example:7390": false,

		"127.0.0.1:7390,[::1]:7391":    true,
		"127.0.0.1:7390,10.0.0.1:7390": false,
		"unix:///run/one,two":          true,
	} {
		normal, err := Normal(" " + target + "\n")
		if err != nil || normal != target {
			t.Errorf("%s is read as %q, %v", target, normal, err)
		}
		if IsLoopback(target) != expected {
			t.Errorf("%s is of this machine: %v", target, !expected)
		}
	}
}
