// Package target reads the names of servers.
package target

import (
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
)

const example = "write host:port, such as 127.0.0.1:7390, or a gRPC name such as dns:///host:7390"

var (
	hostPort   = regexp.MustCompile(`^(\[[0-9A-Fa-f:.%\w]+\]|[^\s:/\[\]@?#]+):([0-9]{1,5})$`)
	webScheme  = regexp.MustCompile(`^(?i:https?|grpcs?)://(.*)$`)
	nameScheme = regexp.MustCompile(`^(dns|unix|unix-abstract|passthrough):/*([^/].*)$`)
)

// Normal returns a target as gRPC takes it: host:port and [v6]:port as they are, names with
// a scheme too (github.com/grpc/grpc/blob/master/doc/naming.md).
func Normal(text string) (string, error) {
	target := strings.TrimSpace(text)
	if found := webScheme.FindStringSubmatch(target); found != nil {
		hint := "TuskPoint speaks gRPC, not URLs: try " + strconv.Quote(strings.TrimRight(found[1], "/"))
		return "", noTarget(text, hint)
	}
	if nameScheme.MatchString(target) {
		return target, nil
	}
	found := hostPort.FindStringSubmatch(target)
	if found == nil {
		return "", noTarget(text, example)
	}
	if port, err := strconv.Atoi(found[2]); err != nil || port < 1 || port > 65535 {
		return "", noTarget(text, example)
	}
	return target, nil
}

func noTarget(text, hint string) error {
	return fmt.Errorf("%q is no target: %s", text, hint)
}

// IsLoopback reports whether a target names this machine.
func IsLoopback(target string) bool {
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
