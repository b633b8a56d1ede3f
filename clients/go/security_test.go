package tuskpoint_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tuskpoint.dev/go/tuskpoint"
	"tuskpoint.dev/go/tuskpoint/internal/servertest"
)

// secured is a server with TLS and tokens that requires a certificate of its clients.
type secured struct {
	*servertest.Security
	target string
	tokens map[string]string
}

func secure(t *testing.T) *secured {
	t.Helper()
	made := &secured{Security: must(servertest.Secure(t.TempDir()))(t), tokens: map[string]string{}}
	for name, one := range map[string]struct {
		tenant string
		scopes []string
	}{
		"writer":   {"default", []string{"read", "write", "handoff", "admin"}},
		"reader":   {"default", []string{"read"}},
		"stranger": {"elsewhere", []string{"read", "write"}},
	} {
		made.tokens[name] = must(made.NewToken(name, one.tenant, one.scopes...))(t)
	}
	server := startServer(t, append(made.Arguments(), "--tls-client-ca", made.CAFile)...)
	made.target = strings.Replace(server.Target, "127.0.0.1", "localhost", 1)
	return made
}

// known returns a client that the server trusts and that has a certificate, with further options.
func (s *secured) known(t *testing.T, options ...tuskpoint.Option) *tuskpoint.Client {
	t.Helper()
	return dialTo(t, s.target, append(options, tuskpoint.WithCAFile(s.CAFile),
		tuskpoint.WithCertificateFiles(s.ClientCert, s.ClientKey))...)
}

// as returns a client that uses one of the tokens.
func (s *secured) as(t *testing.T, name string) *tuskpoint.Client {
	t.Helper()
	return s.known(t, tuskpoint.WithToken(s.tokens[name]))
}

func TestCredentialsDecideWhatMayBeDone(t *testing.T) {
	world, thread := secure(t), newThread()
	writer := world.as(t, "writer")
	id := save(t, writer, thread, map[string]any{"a": 1})
	events := 0
	for range writer.Watch(within(t), thread, nil) {
		events++
		break
	}
	want(t, "the number of events", events, 1)

	t.Run("a reader only reads", func(t *testing.T) {
		reader := world.as(t, "reader")
		want(t, "what it loads", must(reader.Load(within(t), thread, "", nil))(t).ID, id)
		_, err := reader.Save(within(t), thread, map[string]any{"a": 2}, nil)
		failure := wantError(t, err, tuskpoint.ErrPermissionDenied, "SCOPE_MISSING")
		want(t, "the scope", failure.Metadata["scope"], "write")
		_, err = reader.HandOff(within(t), thread, nil)
		failure = wantError(t, err, tuskpoint.ErrPermissionDenied, "SCOPE_MISSING")
		want(t, "the scope", failure.Metadata["scope"], "handoff")
	})
	t.Run("a stranger sees nothing", func(t *testing.T) {
		stranger := world.as(t, "stranger")
		_, err := stranger.Load(within(t), thread, "", nil)
		wantError(t, err, tuskpoint.ErrNotFound, "CHECKPOINT_NOT_FOUND")
		want(t, "what it deletes", must(stranger.Delete(within(t), thread, nil))(t), 0)
	})
	t.Run("nobody calls without a token", func(t *testing.T) {
		nobody := world.known(t)
		_, err := nobody.Load(within(t), thread, "", nil)
		wantError(t, err, tuskpoint.ErrUnauthenticated, "CREDENTIAL_INVALID")
		for _, err := range nobody.Watch(within(t), thread, nil) {
			wantError(t, err, tuskpoint.ErrUnauthenticated, "CREDENTIAL_INVALID")
		}
	})
	t.Run("an unknown token is refused and not repeated", func(t *testing.T) {
		const token = "tusk_unknownunknownunknownunknownunknownunknown"
		unknown := world.known(t, tuskpoint.WithToken(token))
		_, err := unknown.Load(within(t), thread, "", nil)
		wantError(t, err, tuskpoint.ErrUnauthenticated, "CREDENTIAL_INVALID")
		want(t, "the token is in the message", strings.Contains(err.Error(), token), false)
	})
	t.Run("a token file is read again", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "token")
		write := func(text string) {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write(world.tokens["reader"] + "\n")
		client := world.known(t, tuskpoint.WithTokenFile(path))
		_, err := client.Save(within(t), thread, map[string]any{"a": 2}, nil)
		wantError(t, err, tuskpoint.ErrPermissionDenied, "SCOPE_MISSING")
		write(world.tokens["writer"])
		second := save(t, client, thread, map[string]any{"a": 2})
		write("") // as a careless tool replaces the file
		want(t, "the latest", must(client.Load(within(t), thread, "", nil))(t).ID, second)
	})
	t.Run("the environment replaces absent arguments", func(t *testing.T) {
		t.Setenv(tuskpoint.TargetVariable, world.target)
		t.Setenv(tuskpoint.CAFileVariable, world.CAFile)
		t.Setenv(tuskpoint.CertFileVariable, world.ClientCert)
		t.Setenv(tuskpoint.KeyFileVariable, world.ClientKey)
		t.Setenv(tuskpoint.TokenVariable, world.tokens["stranger"])
		_, err := dialTo(t, "").Load(within(t), thread, id, nil)
		wantError(t, err, tuskpoint.ErrNotFound, "CHECKPOINT_NOT_FOUND")
		given := dialTo(t, "", tuskpoint.WithToken(world.tokens["reader"]))
		want(t, "what is loaded", must(given.Load(within(t), thread, id, nil))(t).ID, id)
	})
	t.Run("a server that is not trusted is unavailable", func(t *testing.T) {
		other := must(servertest.Secure(t.TempDir()))(t)
		for name, option := range map[string]tuskpoint.Option{
			"another CA":         tuskpoint.WithCAFile(other.CAFile),
			"the system's roots": tuskpoint.WithTLS(true),
		} {
			client := dialTo(t, world.target, option, tuskpoint.WithToken(world.tokens["writer"]))
			_, err := client.Info(within(t))
			wantError(t, err, tuskpoint.ErrUnavailable, "")
			var unverified *tls.CertificateVerificationError
			want(t, name+" is the cause", errors.As(err, &unverified), true)
		}
		plain := dialTo(t, world.target, tuskpoint.WithTLS(false), tuskpoint.WithTimeout(300*time.Millisecond))
		_, err := plain.Info(within(t))
		wantError(t, err, tuskpoint.ErrUnavailable, "")
		secret := dial(t, tuskpoint.WithTLS(true))
		_, err = secret.Info(within(t))
		wantError(t, err, tuskpoint.ErrUnavailable, "")
		var noTLS tls.RecordHeaderError
		want(t, "a server without TLS is the cause", errors.As(err, &noTLS), true)
	})
	t.Run("a server that asks for a certificate is shown one", func(t *testing.T) {
		client := dialTo(t, world.target, tuskpoint.WithCAFile(world.CAFile),
			tuskpoint.WithToken(world.tokens["reader"]), tuskpoint.WithTimeout(300*time.Millisecond))
		_, err := client.Info(within(t))
		wantError(t, err, tuskpoint.ErrUnavailable, "")
	})
	t.Run("a TLS configuration of the caller's own", func(t *testing.T) {
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(must(os.ReadFile(world.CAFile))(t))
		client := dialTo(t, world.target, tuskpoint.WithTLSConfig(&tls.Config{RootCAs: roots}),
			tuskpoint.WithCertificateFiles(world.ClientCert, world.ClientKey),
			tuskpoint.WithToken(world.tokens["reader"]))
		must(client.Info(within(t)))(t)
	})
}

func TestUnusableSettingsAreRefusedByDial(t *testing.T) {
	directory := t.TempDir()
	empty := filepath.Join(directory, "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	made := must(servertest.Secure(directory))(t)
	for name, one := range map[string]struct {
		target string
		option tuskpoint.Option
	}{
		"a URL":               {"https://example:7390/", nil},
		"no port":             {"example", nil},
		"too high a port":     {"example:65536", nil},
		"an unknown scheme":   {"xds:///example", nil},
		"an empty address":    {"one:1,,two:2", nil},
		"one without a port":  {"one:1,two", nil},
		"a list of a scheme":  {"dns:///one:1,two:2", nil},
		"a scheme in a list":  {"one:1,dns:///two:2", nil},
		"an empty token":      {"", tuskpoint.WithToken("")},
		"a token of lines":    {"", tuskpoint.WithToken("one\ntwo")},
		"no token file":       {"", tuskpoint.WithTokenFile(filepath.Join(directory, "none"))},
		"an empty token file": {"", tuskpoint.WithTokenFile(empty)},
		"no CA file":          {"", tuskpoint.WithCAFile(filepath.Join(directory, "none"))},
		"an empty CA file":    {"", tuskpoint.WithCAFile(empty)},
		"no key":              {"", tuskpoint.WithCertificateFiles(made.ClientCert, "")},
		"another's key":       {"", tuskpoint.WithCertificateFiles(made.ClientCert, made.ServerKey)},
		"no time":             {"", tuskpoint.WithTimeout(0)},
		"no bytes":            {"", tuskpoint.WithMaxMessageBytes(0)},
	} {
		t.Run(name, func(t *testing.T) {
			options := []tuskpoint.Option{}
			if one.option != nil {
				options = append(options, one.option)
			}
			_, err := tuskpoint.Dial(one.target, options...)
			wantError(t, err, tuskpoint.ErrInvalidRequest, "INVALID_FIELD")
		})
	}
	_, err := tuskpoint.Dial("", tuskpoint.WithTLS(false), tuskpoint.WithCAFile(made.CAFile))
	wantError(t, err, tuskpoint.ErrInvalidRequest, "INVALID_FIELD")
	t.Setenv(tuskpoint.CertFileVariable, made.ClientCert)
	_, err = tuskpoint.Dial("")
	wantError(t, err, tuskpoint.ErrInvalidRequest, "INVALID_FIELD")
	t.Setenv(tuskpoint.TLSVariable, "0") // a certificate is then not used
	dialTo(t, "")
	t.Setenv(tuskpoint.TLSVariable, "yes")
	_, err = tuskpoint.Dial("")
	wantError(t, err, tuskpoint.ErrInvalidRequest, "INVALID_FIELD")
}

func TestTokensAreNeverPrinted(t *testing.T) {
	const token = "tusk_secretsecretsecretsecretsecretsecretsecret"
	option := tuskpoint.WithToken(token)
	client := dial(t, option)
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		for _, printed := range []any{option, []tuskpoint.Option{option}, client, &client} {
			if strings.Contains(fmt.Sprintf(format, printed), token) {
				t.Errorf("%s prints the token", format)
			}
		}
	}
}
