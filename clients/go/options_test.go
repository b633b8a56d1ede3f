package tuskpoint

import "testing"

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
