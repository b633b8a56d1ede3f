package tuskpoint

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
	} {
		normal, err := normalTarget(" " + target + "\n")
		if err != nil || normal != target {
			t.Errorf("%s is read as %q, %v", target, normal, err)
		}
		if isLoopback(target) != expected {
			t.Errorf("%s is of this machine: %v", target, !expected)
		}
	}
}

func TestTLSIsUsedWhereATokenCouldBeSeen(t *testing.T) {
	on, off := true, false
	const here, there = "127.0.0.1:7390", "example:7390"
	for name, one := range map[string]struct {
		set      settings
		target   string
		hasToken bool
		expected bool
	}{
		"nothing":                  {settings{}, there, false, false},
		"a token there":            {settings{}, there, true, true},
		"a token here":             {settings{}, here, true, false},
		"a token there, TLS off":   {settings{tls: &off}, there, true, false},
		"a CA here":                {settings{caFile: "ca.pem"}, here, false, true},
		"a CA in the environment,": {settings{caFile: "ca.pem", tls: &off}, there, false, false},
		"asked for":                {settings{tls: &on}, here, false, true},
	} {
		if got := one.set.usesTLS(one.target, one.hasToken); got != one.expected {
			t.Errorf("%s: TLS is used: %v", name, got)
		}
	}
}
