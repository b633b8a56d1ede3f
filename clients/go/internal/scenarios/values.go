package main

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The values of scenarios: variables and generated values are inserted, results are matched. Values
// have the types of decode; numbers are json.Number.

const shownBytes = 300

var (
	wholeVariable  = regexp.MustCompile(`^\$([a-z_]+)$`)
	insideVariable = regexp.MustCompile(`\$\$|\$\{([a-z_]+)\}`)
)

// decode reads JSON; numbers keep every bit.
func decode(text []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	return decoder.Decode(into)
}

// encode returns a value as compact JSON.
func encode(value any) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(text.Bytes(), []byte("\n")), nil
}

// plain returns a value with the types of decoded JSON.
func plain(value any) (any, error) {
	text, err := encode(value)
	if err != nil {
		return nil, err
	}
	var read any
	return read, decode(text, &read)
}

// fill returns a value with its variables and generated values inserted.
func fill(value any, variables map[string]any) (any, error) {
	switch given := value.(type) {
	case string:
		return fillText(given, variables)
	case []any:
		filled := make([]any, len(given))
		for i, item := range given {
			one, err := fill(item, variables)
			if err != nil {
				return nil, err
			}
			filled[i] = one
		}
		return filled, nil
	case map[string]any:
		if len(given) == 1 {
			for form, details := range given {
				if make, isMade := makers[form]; isMade {
					return make(details, variables)
				}
			}
		}
		filled := make(map[string]any, len(given))
		for key, item := range given {
			one, err := fill(item, variables)
			if err != nil {
				return nil, err
			}
			filled[key] = one
		}
		return filled, nil
	}
	return value, nil
}

func fillText(text string, variables map[string]any) (any, error) {
	if whole := wholeVariable.FindStringSubmatch(text); whole != nil {
		value, has := variables[whole[1]]
		if !has {
			return nil, fmt.Errorf("there is no variable %s", whole[1])
		}
		return value, nil
	}
	var unknown error
	filled := insideVariable.ReplaceAllStringFunc(text, func(found string) string {
		if found == "$$" {
			return "$"
		}
		name := found[2 : len(found)-1]
		value, isText := variables[name].(string)
		if !isText {
			unknown = fmt.Errorf("there is no text in a variable %s", name)
		}
		return value
	})
	return filled, unknown
}

// makers generate values.
var makers map[string]func(details any, variables map[string]any) (any, error)

func init() { // here, because makers call fill
	makers = map[string]func(any, map[string]any) (any, error){
		"$text":        repeatedText,
		"$base64":      repeatedBytes,
		"$json_base64": textOfJSON,
	}
}

func repeatedText(details any, variables map[string]any) (any, error) {
	of, times, err := repetition(details, variables)
	return strings.Repeat(of, times), err
}

func repeatedBytes(details any, variables map[string]any) (any, error) {
	of, times, err := repetition(details, variables)
	if err != nil {
		return nil, err
	}
	raw, err := hex.DecodeString(of)
	return base64.StdEncoding.EncodeToString(bytes.Repeat(raw, times)), err
}

func repetition(details any, variables map[string]any) (string, int, error) {
	given, _ := details.(map[string]any)
	of, err := fill(given["of"], variables)
	if err != nil {
		return "", 0, err
	}
	text, isText := of.(string)
	times, isNumber := given["times"].(json.Number)
	if !isText || !isNumber {
		return "", 0, fmt.Errorf("a repetition has a text and a number, not %v", details)
	}
	count, err := strconv.Atoi(times.String())
	return text, count, err
}

func textOfJSON(details any, variables map[string]any) (any, error) {
	inner, err := fill(details, variables)
	if err != nil {
		return nil, err
	}
	text, err := encode(inner)
	return base64.StdEncoding.EncodeToString(text), err
}

// at returns the value at a path such as "checkpoint.ref" or "0.thread_id"; the empty path is the
// result.
func at(result any, path string) (any, error) {
	if path == "" {
		return result, nil
	}
	for step := range strings.SplitSeq(path, ".") {
		switch inside := result.(type) {
		case map[string]any:
			found, has := inside[step]
			if !has {
				return nil, fmt.Errorf("nothing is at %s", path)
			}
			result = found
		case []any:
			index, err := strconv.Atoi(step)
			if err != nil || index < 0 || index >= len(inside) {
				return nil, fmt.Errorf("nothing is at %s", path)
			}
			result = inside[index]
		default:
			return nil, fmt.Errorf("nothing is at %s", path)
		}
	}
	return result, nil
}

// check returns where and how a result does not match; nil if it matches.
func check(expected, actual any, where string) error {
	switch wanted := expected.(type) {
	case map[string]any:
		return checkObject(wanted, actual, where)
	case []any:
		items, isList := actual.([]any)
		if !isList || len(items) != len(wanted) {
			return fmt.Errorf("%s is %s, not a list of %d", where, shown(actual), len(wanted))
		}
		for i, one := range wanted {
			if err := check(one, items[i], fmt.Sprintf("%s.%d", where, i)); err != nil {
				return err
			}
		}
		return nil
	}
	if !equal(expected, actual) {
		return fmt.Errorf("%s is %s, not %s", where, shown(actual), shown(expected))
	}
	return nil
}

func checkObject(expected map[string]any, actual any, where string) error {
	if _, has := expected["$any"]; has {
		return nil
	}
	if length, has := expected["$length"]; has {
		if size := sizeOf(actual); size < 0 || !equal(length, json.Number(strconv.Itoa(size))) {
			return fmt.Errorf("%s is %s, not of length %s", where, shown(actual), shown(length))
		}
		return nil
	}
	if wanted, has := expected["$contains"]; has {
		if !contains(actual, wanted, where) {
			return fmt.Errorf("%s is %s, without %s", where, shown(actual), shown(wanted))
		}
		return nil
	}
	if unwanted, has := expected["$not"]; has {
		if check(unwanted, actual, where) == nil {
			return fmt.Errorf("%s is %s", where, shown(actual))
		}
		return nil
	}
	object, isObject := actual.(map[string]any)
	if !isObject {
		return fmt.Errorf("%s is %s, not an object", where, shown(actual))
	}
	for _, key := range slices.Sorted(maps.Keys(expected)) {
		if err := checkKey(key, expected[key], object, where+"."+key); err != nil {
			return err
		}
	}
	return nil
}

func checkKey(key string, wanted any, object map[string]any, where string) error {
	found, has := object[key]
	if special, isObject := wanted.(map[string]any); isObject && special["$absent"] == true {
		if has {
			return fmt.Errorf("%s is %s and should be absent", where, shown(found))
		}
		return nil
	}
	if !has {
		return errors.New(where + " is absent")
	}
	return check(wanted, found, where)
}

func contains(actual, wanted any, where string) bool {
	if text, isText := actual.(string); isText {
		part, isPart := wanted.(string)
		return isPart && strings.Contains(text, part)
	}
	items, _ := actual.([]any)
	return slices.ContainsFunc(items, func(item any) bool { return check(wanted, item, where) == nil })
}

func sizeOf(value any) int {
	switch sized := value.(type) {
	case string:
		return utf8.RuneCountInString(sized)
	case []any:
		return len(sized)
	case map[string]any:
		return len(sized)
	}
	return -1
}

// equal compares values that are neither lists nor objects; numbers by value.
func equal(a, b any) bool {
	first, isNumber := a.(json.Number)
	second, isAlso := b.(json.Number)
	if !isNumber || !isAlso {
		return isNumber == isAlso && a == b
	}
	one, isOne := new(big.Rat).SetString(first.String())
	other, isOther := new(big.Rat).SetString(second.String())
	return isOne && isOther && one.Cmp(other) == 0
}

func shown(value any) string {
	text, err := encode(value)
	if err != nil {
		return err.Error()
	}
	if len(text) > shownBytes {
		return strings.ToValidUTF8(string(text[:shownBytes]), "") + "..."
	}
	return string(text)
}
