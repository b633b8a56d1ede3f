package tuskpoint

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	targets "tuskpoint.dev/go/tuskpoint/internal/target"
)

// The environment variables that replace missing arguments of [Dial].
const (
	TargetVariable    = "TUSKPOINT_TARGET"     // host:port of the server
	TokenVariable     = "TUSKPOINT_TOKEN"      // the bearer token
	TokenFileVariable = "TUSKPOINT_TOKEN_FILE" // a file with the token, if TUSKPOINT_TOKEN is not set
	CAFileVariable    = "TUSKPOINT_CA_FILE"    // certificates (PEM) that sign the server's certificate
	CertFileVariable  = "TUSKPOINT_CERT_FILE"  // the client's own certificate (PEM)
	KeyFileVariable   = "TUSKPOINT_KEY_FILE"   // key of that certificate
	TLSVariable       = "TUSKPOINT_TLS"        // 1: TLS with the system's roots, 0: plaintext
)

// LeaseVariable is the environment variable with a lease that another process holds: its ID, a colon
// and the thread. `tuskpoint lease run THREAD -- COMMAND` sets it.
const LeaseVariable = "TUSKPOINT_LEASE"

// DefaultTarget is the target if neither the caller nor the environment names one.
const DefaultTarget = "127.0.0.1:" + defaultPort

const defaultPort = "7390"

// Option sets one property of a client; see [Dial]. Options take precedence over the environment.
type Option func(*settings)

// settings are the settings of a client.
type settings struct {
	// A function, and not a text, so that printed settings or options contain no token.
	token    func() (string, error) // nil: from the environment, or none
	caFile   string
	certFile string
	keyFile  string
	tls      *bool // nil: as the other settings imply
	config   *tls.Config

	logger          func() *slog.Logger
	times           times
	keepalive       keepalive.ClientParameters
	maxMessageBytes int
	valueCacheBytes int
	more            []grpc.DialOption
}

// times has the deadlines and the patience of calls.
type times struct {
	quick  time.Duration // deadline of quick calls, and time during which a failed call is retried
	long   time.Duration // deadline of calls that wait for the blob store or touch many rows
	stream time.Duration // deadline of reading a stream, the reader's own pauses included
	resume time.Duration // time during which an interrupted stream tries to resume

	firstAnswer time.Duration // time to reach a target that has never answered
}

func defaults() *settings {
	return &settings{
		times: times{
			quick:  30 * time.Second,
			long:   5 * time.Minute,
			stream: time.Hour,
			resume: 5 * time.Minute,

			firstAnswer: firstAnswer,
		},
		logger: slog.Default,
		// Pings detect a server that vanished while a stream is open. gRPC servers commonly object
		// to pings that come more often than every 10 seconds.
		keepalive:       keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 20 * time.Second},
		maxMessageBytes: 8 << 20,
		valueCacheBytes: DefaultValueCacheBytes,
	}
}

// WithToken sends a bearer token with every call. The token goes to another machine only over TLS,
// unless [WithTLS] switches TLS off.
func WithToken(token string) Option {
	return func(s *settings) { s.token = func() (string, error) { return token, nil } }
}

// WithTokenFile sends the bearer token in a file with every call. The file is read for each call,
// so that tokens can rotate; while the file is missing or empty, the last token is sent. A call
// that is refused for a token which was replaced meanwhile is repeated with the new token.
func WithTokenFile(path string) Option {
	return func(s *settings) { s.token = tokenFile(path) }
}

// WithCAFile trusts only servers whose certificate is signed by one of the certificates in a file
// (PEM). It switches TLS on.
func WithCAFile(path string) Option {
	return func(s *settings) { s.caFile = path }
}

// WithCertificateFiles shows the server a certificate of the client (PEM), for mutual TLS. The
// files are read for each connection. It switches TLS on.
func WithCertificateFiles(certFile, keyFile string) Option {
	return func(s *settings) { s.certFile, s.keyFile = certFile, keyFile }
}

// WithTLS switches TLS on, with the system's roots unless [WithCAFile] names other certificates, or
// off.
func WithTLS(on bool) Option {
	return func(s *settings) { s.tls = &on }
}

// WithTLSConfig switches TLS on with the caller's own configuration, which must not be changed
// afterwards. A CA and a certificate of other options are put into a copy; a CA and a certificate
// of the environment are ignored.
func WithTLSConfig(config *tls.Config) Option {
	return func(s *settings) { s.config = config }
}

// WithTimeout sets the deadline of quick calls whose context has none, and the time after which a
// failed call is no longer retried. The timeout must be above 0; the default is 30 seconds, which
// outlasts the restart of a server, but 5 seconds for a target that has never answered. Calls that
// wait for the blob store or touch many checkpoints have 5 minutes, streams have an hour, watches
// have no end.
func WithTimeout(timeout time.Duration) Option {
	return func(s *settings) { s.times.quick, s.times.firstAnswer = timeout, timeout }
}

// WithResumeTimeout sets how long an interrupted stream tries to resume. The timeout must be above
// 0; the default is 5 minutes.
func WithResumeTimeout(timeout time.Duration) Option {
	return func(s *settings) { s.times.resume = timeout }
}

// WithLogger logs warnings about the connection with a logger. The default is [slog.Default]. A
// client warns once a minute about a target that has not answered yet.
func WithLogger(logger *slog.Logger) Option {
	return func(s *settings) { s.logger = func() *slog.Logger { return logger } }
}

// WithKeepalive sets the silence on an open stream after which the client pings the server, and the
// time that the server has to answer. The defaults are 30 and 20 seconds; the minimum interval is
// 10 seconds.
func WithKeepalive(interval, timeout time.Duration) Option {
	return func(s *settings) {
		s.keepalive = keepalive.ClientParameters{Time: interval, Timeout: timeout}
	}
}

// WithMaxMessageBytes sets the size of the largest message in both directions. The default is 8
// MiB, the largest message that a server accepts. Values of any size travel in chunks.
func WithMaxMessageBytes(most int) Option {
	return func(s *settings) { s.maxMessageBytes = most }
}

// WithValueCacheBytes sets how many bytes of values the client keeps from the checkpoints that it
// saved and loaded last, so that loads need not send them again. The default is
// [DefaultValueCacheBytes]; 0 keeps no values.
func WithValueCacheBytes(most int) Option {
	return func(s *settings) { s.valueCacheBytes = most }
}

// WithDialOptions adds options of gRPC's own, such as a stats handler for telemetry. They are
// applied last and can override the settings of this package. Saves and loads share a stream, so
// interceptors and handlers see its messages; each call carries the traceparent of its context's
// outgoing metadata.
func WithDialOptions(options ...grpc.DialOption) Option {
	return func(s *settings) { s.more = append(s.more, options...) }
}

// settle fills in the environment variables and checks the settings.
func (s *settings) settle() error {
	if s.times.quick <= 0 || s.times.resume <= 0 {
		return invalidField("timeout", "it must be above 0")
	}
	if s.maxMessageBytes <= 0 {
		return invalidField("max_message_bytes", "it must be above 0")
	}
	if s.valueCacheBytes < 0 {
		return invalidField("value_cache_bytes", "it must be 0 or more")
	}
	s.times.long = max(s.times.long, s.times.quick)
	s.times.stream = max(s.times.stream, s.times.quick)
	if s.token == nil {
		s.token = tokenOfEnvironment()
	}
	return s.settleTLS()
}

func (s *settings) settleTLS() error {
	given := s.config != nil || s.caFile != "" || s.certFile != "" || s.keyFile != ""
	if given && s.tls != nil && !*s.tls {
		return invalidField("tls", "it is off, but certificates are given: remove either")
	}
	if !given && s.tls == nil {
		switch text := os.Getenv(TLSVariable); text {
		case "":
		case "0", "1":
			on := text == "1"
			s.tls = &on
		default:
			return invalidField(TLSVariable, fmt.Sprintf("it must be 1 (on) or 0 (off), not %q", text))
		}
	}
	if s.tls != nil && !*s.tls {
		return nil // the environment's certificates are only for TLS
	}
	if s.config == nil {
		s.caFile = cmp.Or(s.caFile, os.Getenv(CAFileVariable))
	}
	if s.config == nil && s.certFile == "" && s.keyFile == "" {
		s.certFile, s.keyFile = os.Getenv(CertFileVariable), os.Getenv(KeyFileVariable)
	}
	if (s.certFile == "") != (s.keyFile == "") {
		return invalidField("certificate", "a certificate and its key must be given together: "+
			"see WithCertificateFiles, "+CertFileVariable+" and "+KeyFileVariable)
	}
	return nil
}

// usesTLS reports whether connections to a target are encrypted. A token goes to another machine in
// plaintext only if the caller requested that.
func (s *settings) usesTLS(target string, hasToken bool) bool {
	if s.tls != nil {
		return *s.tls
	}
	if s.config != nil || s.caFile != "" || s.certFile != "" {
		return true
	}
	return hasToken && !targets.IsLoopback(target)
}

func tokenOfEnvironment() func() (string, error) {
	if token := os.Getenv(TokenVariable); token != "" {
		return func() (string, error) { return token, nil }
	}
	if path := os.Getenv(TokenFileVariable); path != "" {
		return tokenFile(path)
	}
	return nil
}

// tokenFile returns a function that reads a token from a file.
func tokenFile(path string) func() (string, error) {
	var last atomic.Pointer[string]
	return func() (string, error) {
		text, err := os.ReadFile(path)
		token := strings.TrimSpace(string(text))
		if err == nil {
			err = checkToken(token)
		}
		if err == nil {
			last.Store(&token)
			return token, nil
		}
		if before := last.Load(); before != nil {
			return *before, nil
		}
		return "", fmt.Errorf("the token file %s cannot be used: %w", path, err)
	}
}

// checkToken returns an error for a text that cannot be a token. The error never contains the text.
func checkToken(text string) error {
	if text == "" {
		return errors.New("it is empty; use a token that `tuskpoint-server token` printed")
	}
	for place, char := range []byte(text) {
		if char <= ' ' || char > '~' {
			return fmt.Errorf("character %d of %d cannot be part of a token (a space, a line break, or "+
				"none of ASCII)", place+1, len(text))
		}
	}
	return nil
}
