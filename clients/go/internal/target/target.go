// Package target parses the addresses of servers.
package target

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const example = "write host:port, such as 127.0.0.1:7390, or a gRPC name such as dns:///host:7390; " +
	"for several servers host1:7390,host2:7390, without a scheme"

var (
	hostPort   = regexp.MustCompile(`^(\[[0-9A-Fa-f:.%\w]+\]|[^\s:/\[\]@?#]+):([0-9]{1,5})$`)
	webScheme  = regexp.MustCompile(`^(?i:https?|grpcs?)://(.*)$`)
	nameScheme = regexp.MustCompile(`^(dns|unix|unix-abstract|passthrough):/*([^/].*)$`)
)

// Normal returns a target without white space: host:port, [v6]:port, several of them with commas
// between, or a name with a scheme (github.com/grpc/grpc/blob/master/doc/naming.md).
func Normal(text string) (string, error) {
	target := strings.TrimSpace(text)
	if match := webScheme.FindStringSubmatch(target); match != nil {
		hint := "TuskPoint speaks gRPC, not URLs: try " + strconv.Quote(strings.TrimRight(match[1], "/"))
		return "", noTarget(text, hint)
	}
	if match := nameScheme.FindStringSubmatch(target); match != nil {
		if match[1] == "dns" && strings.Contains(target, ",") {
			return "", noTarget(text, example)
		}
		return target, nil
	}
	addresses := strings.Split(target, ",")
	for place, address := range addresses {
		addresses[place] = strings.TrimSpace(address)
		match := hostPort.FindStringSubmatch(addresses[place])
		if match == nil {
			return "", noTarget(text, example)
		}
		if port, err := strconv.Atoi(match[2]); err != nil || port < 1 || port > 65535 {
			return "", noTarget(text, example)
		}
	}
	return strings.Join(addresses, ","), nil
}

// Addresses returns the addresses of a target: several for a list, otherwise the target.
func Addresses(target string) []string {
	if nameScheme.MatchString(target) {
		return []string{target}
	}
	return strings.Split(target, ",")
}

// IsSeveral reports whether a target may be several servers: a list, or a DNS name.
func IsSeveral(target string) bool {
	return len(Addresses(target)) > 1 || strings.HasPrefix(target, "dns:")
}

func noTarget(text, hint string) error {
	return fmt.Errorf("%q is not a target: %s", text, hint)
}

// IsLoopback reports whether a target names only this machine.
func IsLoopback(target string) bool {
	return !slices.ContainsFunc(Addresses(target), isElsewhere)
}

func isElsewhere(address string) bool { return !isLoopback(address) }

func isLoopback(target string) bool {
	if strings.HasPrefix(target, "unix:") || strings.HasPrefix(target, "unix-abstract:") {
		return true
	}
	place := target
	if nameScheme.MatchString(target) {
		place = target[strings.LastIndexByte(target, '/')+1:]
		place = strings.TrimPrefix(strings.TrimPrefix(place, "dns:"), "passthrough:")
	}
	host := place
	if colon := strings.LastIndexByte(place, ':'); colon >= 0 && !strings.HasSuffix(place, "]") {
		host = place[:colon]
	}
	host = strings.Trim(host, "[]")
	if strings.EqualFold(host, "localhost") {
		return true
	}
	address, err := netip.ParseAddr(host)
	return err == nil && address.Unmap().IsLoopback()
}
