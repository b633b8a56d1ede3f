package tuskpoint

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/status"

	targets "tuskpoint.dev/go/tuskpoint/internal/target"
)

const userAgent = "tuskpoint-go"

// connect is the only function that opens a connection. Nothing is sent before the first call.
func connect(target string, set *settings, via *caller) (*grpc.ClientConn, error) {
	if set.token != nil {
		token, err := set.token()
		if err == nil {
			err = checkToken(token)
		}
		if err != nil {
			return nil, invalidField("token", err.Error())
		}
	}
	secured := set.usesTLS(target, set.token != nil)
	transport := insecure.NewCredentials()
	if secured {
		config, err := set.tlsConfig()
		if err != nil {
			return nil, err
		}
		transport = &watchedHandshake{credentials.NewTLS(config), &via.handshake}
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(transport),
		grpc.WithUserAgent(userAgent),
		grpc.WithKeepaliveParams(set.keepalive),
		grpc.WithDefaultCallOptions(
			grpc.MaxCallRecvMsgSize(set.maxMessageBytes), grpc.MaxCallSendMsgSize(set.maxMessageBytes)),
		// Reconnecting starts fast and is bounded, so that a restarted server is reached within
		// seconds.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{
				BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second,
			},
			MinConnectTimeout: 20 * time.Second,
		}),
		// Package retry repeats the calls.
		grpc.WithDisableRetry(),
		grpc.WithDisableServiceConfig(),
		grpc.WithChainUnaryInterceptor(via.unary),
		grpc.WithChainStreamInterceptor(via.stream),
	}
	if set.token != nil {
		options = append(options, grpc.WithPerRPCCredentials(bearer{set.token, secured}))
	}
	if targets.IsLoopback(target) {
		options = append(options, grpc.WithNoProxy())
	}
	if targets.IsSeveral(target) {
		options = append(options,
			grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"round_robin": {}}]}`))
	}
	dialled := target
	if addresses := targets.Addresses(target); len(addresses) > 1 {
		listed := resolverOf(addresses)
		options = append(options, grpc.WithResolvers(listed))
		dialled = listed.Scheme() + ":///" + addresses[0]
	}
	connection, err := grpc.NewClient(dialled, append(options, set.more...)...)
	if err != nil {
		return nil, invalidField("target", err.Error())
	}
	return connection, nil
}

// resolverOf returns a resolver that gives gRPC the addresses of a list. Each connection resolves
// its own name, and checks the name against the certificate of its server.
func resolverOf(addresses []string) resolver.Builder {
	var state resolver.State
	for _, address := range addresses {
		state.Addresses = append(state.Addresses, resolver.Address{Addr: address, ServerName: address})
	}
	made := manual.NewBuilderWithScheme("tuskpoint")
	made.InitialState(state)
	return made
}

func (s *settings) tlsConfig() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if s.config != nil {
		config = s.config.Clone()
	}
	if s.caFile != "" {
		text, err := os.ReadFile(s.caFile)
		if err != nil {
			return nil, invalidField("ca_file", err.Error())
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, invalidField("ca_file", s.caFile+" has no certificate in PEM")
		}
	}
	if s.certFile != "" {
		own := func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(s.certFile, s.keyFile)
			if err != nil {
				return nil, &certificateProblem{err}
			}
			return &pair, nil
		}
		if _, err := own(nil); err != nil {
			return nil, invalidField("certificate", err.Error())
		}
		config.GetClientCertificate = own
	}
	return config, nil
}

// certificateProblem is the error for a client certificate that cannot be used.
type certificateProblem struct{ cause error }

func (p *certificateProblem) Error() string {
	return "the client's certificate cannot be used: " + p.cause.Error()
}

func (p *certificateProblem) Unwrap() error { return p.cause }

// bearer sends a token with every call.
type bearer struct {
	token   func() (string, error)
	secured bool
}

func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	token, err := b.token()
	if err != nil {
		return nil, status.Error(codes.Unauthenticated, err.Error())
	}
	return map[string]string{"authorization": "Bearer " + token}, nil
}

func (b bearer) RequireTransportSecurity() bool { return b.secured }

// handshake has the outcome of the TLS handshakes of a client.
type handshake struct {
	succeeded atomic.Bool           // a handshake has succeeded
	problem   atomic.Pointer[error] // failure of the last handshake, if it concerns trust
}

// refusal returns the reason that no connection can be made, if it concerns trust: a retry does not
// help then. After a successful connection, a certificate may be in the course of replacement.
func (h *handshake) refusal() error {
	problem := h.problem.Load()
	if problem == nil || h.succeeded.Load() {
		return nil
	}
	return *problem
}

// watchedHandshake records the outcome of handshakes, because gRPC passes their errors on as text
// only.
type watchedHandshake struct {
	credentials.TransportCredentials
	seen *handshake
}

func (w *watchedHandshake) ClientHandshake(
	ctx context.Context, authority string, raw net.Conn,
) (net.Conn, credentials.AuthInfo, error) {
	connection, info, err := w.TransportCredentials.ClientHandshake(ctx, authority, raw)
	switch {
	case err == nil:
		w.seen.problem.Store(nil)
		w.seen.succeeded.Store(true)
	case isMatterOfTrust(err):
		w.seen.problem.Store(&err)
	}
	return connection, info, err
}

func (w *watchedHandshake) Clone() credentials.TransportCredentials {
	return &watchedHandshake{w.TransportCredentials.Clone(), w.seen}
}

func isMatterOfTrust(err error) bool {
	var (
		unverified *tls.CertificateVerificationError
		noTLS      tls.RecordHeaderError
		refused    tls.AlertError
		own        *certificateProblem
	)
	return errors.As(err, &unverified) || errors.As(err, &noTLS) || errors.As(err, &refused) ||
		errors.As(err, &own)
}

// untrusted returns the error for calls to a server that no trusted connection can be made to.
func untrusted(target string, problem error) *Error {
	hint := "set the CA that signed its certificate with WithCAFile or " + CAFileVariable
	var (
		noTLS   tls.RecordHeaderError
		refused tls.AlertError
		own     *certificateProblem
	)
	switch {
	case errors.As(problem, &noTLS):
		hint = "the server does not speak TLS: switch TLS off with WithTLS(false) or " + TLSVariable + "=0"
	case errors.As(problem, &refused), errors.As(problem, &own):
		hint = "give the client a certificate that the server accepts, with WithCertificateFiles"
	}
	return &Error{
		Status:  codes.Unavailable,
		Message: fmt.Sprintf("no trusted connection to %s: %s (%v)", target, hint, problem),
		kind:    unavailable,
		cause:   problem,
		final:   true,
	}
}
