package servertest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Security has the arguments of a server with TLS and tokens, and the files for its clients.
type Security struct {
	// CAFile has the certificate of the authority that signed the other certificates.
	CAFile string

	// ServerCert and ServerKey are the server's certificate, for 127.0.0.1 and localhost.
	ServerCert, ServerKey string

	// ClientCert and ClientKey are a certificate for a client, and its key.
	ClientCert, ClientKey string

	tokenFile string
}

// Arguments returns the arguments of a server with TLS and tokens.
func (s *Security) Arguments() []string {
	return []string{"--tls-cert", s.ServerCert, "--tls-key", s.ServerKey, "--tokens", s.tokenFile}
}

// Secure creates certificates and an empty token file in a directory.
func Secure(directory string) (*Security, error) {
	made := &Security{tokenFile: filepath.Join(directory, "tokens.toml")}
	root, rootKey, err := signed("ca", nil, nil)
	if err != nil {
		return nil, err
	}
	if made.CAFile, err = write(directory, "ca.pem", "CERTIFICATE", root.Raw); err != nil {
		return nil, err
	}
	if made.ServerCert, made.ServerKey, err = pair(directory, "server", root, rootKey); err != nil {
		return nil, err
	}
	if made.ClientCert, made.ClientKey, err = pair(directory, "client", root, rootKey); err != nil {
		return nil, err
	}
	return made, nil
}

// NewToken returns a new token that is known to servers that start later.
func (s *Security) NewToken(name, tenant string, scopes ...string) (string, error) {
	random := make([]byte, 32)
	if _, err := rand.Read(random); err != nil {
		return "", err
	}
	token := "tusk_" + base64.RawURLEncoding.EncodeToString(random)
	file, err := os.OpenFile(s.tokenFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return "", err
	}
	defer file.Close()
	_, err = fmt.Fprintf(file, "[[token]]\nname = %q\nsha256 = \"%x\"\ntenant = %q\nscopes = [\"%s\"]\n\n",
		name, sha256.Sum256([]byte(token)), tenant, strings.Join(scopes, `", "`))
	return token, err
}

// pair creates a certificate and its key, signed by another certificate.
func pair(directory, name string, by *x509.Certificate, with *ecdsa.PrivateKey) (string, string, error) {
	certificate, key, err := signed(name, by, with)
	if err != nil {
		return "", "", err
	}
	certFile, err := write(directory, name+".pem", "CERTIFICATE", certificate.Raw)
	if err != nil {
		return "", "", err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return "", "", err
	}
	keyFile, err := write(directory, name+"-key.pem", "PRIVATE KEY", secret)
	return certFile, keyFile, err
}

// signed creates a certificate; without a signer, a self-signed certificate that signs others.
func signed(
	name string, by *x509.Certificate, with *ecdsa.PrivateKey,
) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(24 * time.Hour),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		DNSNames:              []string{"localhost", name + ".example"},
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
		BasicConstraintsValid: true,
	}
	if by == nil {
		template.IsCA, template.KeyUsage, template.ExtKeyUsage = true, x509.KeyUsageCertSign, nil
		template.DNSNames, template.IPAddresses = nil, nil
		by, with = template, key
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, by, &key.PublicKey, with)
	if err != nil {
		return nil, nil, err
	}
	certificate, err := x509.ParseCertificate(raw)
	return certificate, key, err
}

func write(directory, name, kind string, content []byte) (string, error) {
	path := filepath.Join(directory, name)
	text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content})
	return path, os.WriteFile(path, text, 0o600)
}
