package main

import (
	"strings"
	"testing"
)

func parsed(t *testing.T, text string) any {
	t.Helper()
	var value any
	if err := decode([]byte(text), &value); err != nil {
		t.Fatal(err)
	}
	return value
}

func TestValuesAreFilled(t *testing.T) {
	variables := map[string]any{"thread": "t-1", "state": map[string]any{"a": "b"}}
	for text, expected := range map[string]string{
		`"$thread"`:                          `"t-1"`,
		`"$state"`:                           `{"a":"b"}`,
		`["${thread}:x", "$$thread"]`:        `["t-1:x","$thread"]`,
		`"$5"`:                               `"$5"`,
		`{"n": 9007199254740993}`:            `{"n":9007199254740993}`,
		`{"$text": {"of": "é", "times": 3}}`: `"ééé"`,
		`{"$base64": {"of": "00ff", "times": 2}}`:    `"AP8A/w=="`,
		`{"$json_base64": {"b": "$thread", "a": 1}}`: `"eyJhIjoxLCJiIjoidC0xIn0="`,
	} {
		filled, err := fill(parsed(t, text), variables)
		if err != nil || shown(filled) != expected {
			t.Errorf("%s is filled as %s, %v", text, shown(filled), err)
		}
	}
	for _, text := range []string{`"$unknown"`, `["${unknown}"]`, `{"a": "${state}"}`} {
		if filled, err := fill(parsed(t, text), variables); err == nil {
			t.Errorf("%s is filled as %s", text, shown(filled))
		}
	}
}

func TestResultsAreMatched(t *testing.T) {
	for _, one := range []struct{ expected, actual, problem string }{
		{`{"a": 1}`, `{"a": 1.0, "b": 2}`, ""},
		{`{"a": 1}`, `{"a": true}`, "result.a is true, not 1"},
		{`9007199254740993`, `9007199254740992`, "not 9007199254740993"},
		{`[1, 2]`, `[1]`, "not a list of 2"},
		{`[1, {"a": "x"}]`, `[1, {"a": "y"}]`, "result.1.a"},
		{`{"a": {"$absent": true}}`, `{"b": 1}`, ""},
		{`{"a": {"$absent": true}}`, `{"a": null}`, "should be absent"},
		{`{"a": {"$any": true}}`, `{"a": null}`, ""},
		{`{"a": {"$any": true}}`, `{}`, "result.a is absent"},
		{`{"$length": 2}`, `"🐘é"`, ""},
		{`{"$length": 2}`, `7`, "not of length 2"},
		{`{"$contains": {"a": 1}}`, `[{"a": 2}, {"a": 1, "b": 2}]`, ""},
		{`{"$contains": "bc"}`, `"abcd"`, ""},
		{`{"$contains": 1}`, `[2]`, "without 1"},
		{`{"$not": ""}`, `""`, "result is"},
		{`{"a": {}}`, `{"a": []}`, "not an object"},
	} {
		err := check(parsed(t, one.expected), parsed(t, one.actual), "result")
		if (err == nil) != (one.problem == "") || (err != nil && !strings.Contains(err.Error(), one.problem)) {
			t.Errorf("%s against %s: %v", one.actual, one.expected, err)
		}
	}
}

func TestPathsLeadIntoResults(t *testing.T) {
	result := parsed(t, `{"list": [{"id": "x"}]}`)
	for path, expected := range map[string]string{
		"": `{"list":[{"id":"x"}]}`, "list.0.id": `"x"`, "list.0": `{"id":"x"}`,
	} {
		if found, err := at(result, path); err != nil || shown(found) != expected {
			t.Errorf("at %q is %s, %v", path, shown(found), err)
		}
	}
	for _, path := range []string{"none", "list.1", "list.-1", "list.id", "list.0.id.x"} {
		if found, err := at(result, path); err == nil {
			t.Errorf("at %q is %s", path, shown(found))
		}
	}
}
