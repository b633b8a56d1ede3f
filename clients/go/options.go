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

// The environment variables that are used where the arguments of [Dial] are absent.
const (
	TargetVariable    = "TUSKPOINT_TARGET"     // host:port of the server
	TokenVariable     = "TUSKPOINT_TOKEN"      // the bearer token
	TokenFileVariable = "TUSKPOINT_TOKEN_FILE" // a file with it, if TUSKPOINT_TOKEN is not set
	CAFileVariable    = "TUSKPOINT_CA_FILE"    // certificates (PEM) that the server's is signed by
	CertFileVariable  = "TUSKPOINT_CERT_FILE"  // the client's own certificate (PEM)
	KeyFileVariable   = "TUSKPOINT_KEY_FILE"   // and its key
	TLSVariable       = "TUSKPOINT_TLS"        // 1: TLS with the system's roots, 0: plaintext
)

// DefaultTarget is where a client looks for a server that nothing else names.
const DefaultTarget = "127.0.0.1:" + defaultPort

const defaultPort = "7390"

// Option sets one thing about a client; see [Dial]. Options win over the environment.
type Option func(*settings)

// settings is what a client is set up with.
type settings struct {
	// A function, and not a text: whatever prints settings or options prints no token.
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

// times are the deadlines and the patience of calls.
type times struct {
	quick  time.Duration // deadline of quick calls; and a call that fails is tried again for so long
	long   time.Duration // deadline of calls that wait for the blob store or touch much
	stream time.Duration // deadline of reading a stream, the reader's own pauses included
	resume time.Duration // for so long an interrupted stream tries to resume

	firstAnswer time.Duration // for so long a call tries to reach a target that never answered
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
		// It finds a server that vanished while a stream is open. gRPC servers
		// commonly object to pings that come more often than every 10 seconds.
		keepalive:       keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 20 * time.Second},
		maxMessageBytes: 8 << 20,
		valueCacheBytes: DefaultValueCacheBytes,
	}
}

// WithToken sends a bearer token with every call. It goes to another machine over TLS only, unless
// [WithTLS] switches that off.
func WithToken(token string) Option {
	return func(s *settings) { s.token = func() (string, error) { return token, nil } }
}

// WithTokenFile sends the bearer token that a file holds with every call. The file is read anew for
// each call, so that tokens can rotate; while it is gone, or holds no token, the last one is sent. A
// call that is refused for a token which was replaced meanwhile is made again with the new one.
func WithTokenFile(path string) Option {
	return func(s *settings) { s.token = tokenFile(path) }
}

// WithCAFile trusts servers whose certificate is signed by one of a file's (PEM), and no others.
// It switches TLS on.
func WithCAFile(path string) Option {
	return func(s *settings) { s.caFile = path }
}

// WithCertificateFiles shows the server a certificate of the client's own (PEM), for mutual TLS.
// The files are read anew for each connection. It switches TLS on.
func WithCertificateFiles(certFile, keyFile string) Option {
	return func(s *settings) { s.certFile, s.keyFile = certFile, keyFile }
}

// WithTLS switches TLS on, with the system's roots unless [WithCAFile] names others, or off.
func WithTLS(on bool) Option {
	return func(s *settings) { s.tls = &on }
}

// WithTLSConfig switches TLS on with a configuration of the caller's own, which must not be changed
// any more. A CA and a certificate that other options name are put into a copy; the environment's are
// not looked at.
func WithTLSConfig(config *tls.Config) Option {
	return func(s *settings) { s.config = config }
}

// WithTimeout sets the deadline of quick calls whose context has none, and the time after which a
// call that fails is no longer sent again. It has to be above 0; the default is 30 seconds, which
// sits out the restart of a server, but 5 seconds for a target that never answered. Calls that wait for the blob store or touch many checkpoints
// have 5 minutes, streams an hour, watches no end.
func WithTimeout(timeout time.Duration) Option {
	return func(s *settings) { s.times.quick, s.times.firstAnswer = timeout, timeout }
}

// WithResumeTimeout sets for how long an interrupted stream tries to resume. It has to be above 0;
// the default is 5 minutes.
func WithResumeTimeout(timeout time.Duration) Option {
	return func(s *settings) { s.times.resume = timeout }
}

// WithLogger logs warnings about the connection with a logger. The default is [slog.Default]. A client
// warns once a minute of a target that has not answered yet.
func WithLogger(logger *slog.Logger) Option {
	return func(s *settings) { s.logger = func() *slog.Logger { return logger } }
}

// WithKeepalive sets after how much silence on an open stream the server is asked whether it is
// there, and how long it has to answer. The defaults are 30 and 20 seconds, the least is 10.
func WithKeepalive(interval, timeout time.Duration) Option {
	return func(s *settings) {
		s.keepalive = keepalive.ClientParameters{Time: interval, Timeout: timeout}
	}
}

// WithMaxMessageBytes sets the size of the largest message, either way. The default is 8 MiB, what
// a server takes. Values of any size travel in chunks.
func WithMaxMessageBytes(most int) Option {
	return func(s *settings) { s.maxMessageBytes = most }
}

// WithValueCacheBytes sets how many bytes of values the client keeps of the checkpoints that it saved
// and loaded last, so that loads need not send them again. The default is [DefaultValueCacheBytes];
// 0 keeps none.
func WithValueCacheBytes(most int) Option {
	return func(s *settings) { s.valueCacheBytes = most }
}

// WithDialOptions adds options of gRPC's own, such as a stats handler for telemetry. They come last
// and can undo what this package sets. Saves and loads share a stream, so interceptors and handlers
// see its messages; each call carries the traceparent of its context's outgoing metadata.
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
		return nil // the environment's certificates are for TLS
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
// plaintext only if that was asked for.
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

// tokenFile returns what reads a token from a file.
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

// checkToken returns an error for a text that cannot be a token. The error never has the text.
func checkToken(text string) error {
	if text == "" {
		return errors.New("it is empty; use a token that `tuskpoint-server token` printed")
	}
	for place, one := range []byte(text) {
		if one <= ' ' || one > '~' {
			return fmt.Errorf("character %d of %d cannot be part of a token (a space, a line break, or "+
				"none of ASCII)", place+1, len(text))
		}
	}
	return nil
}
