package standin

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/asn1"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/smallstep/pkcs7"
)

// Signer signs identity documents as AWS does.
type Signer struct {
	File        string // of its certificate
	key         *rsa.PrivateKey
	certificate *x509.Certificate
}

// NewSigner makes one with a key of that size and a certificate until then.
func NewSigner(t testing.TB, bits int, until time.Time) Signer {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, bits)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: until}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	s := Signer{filepath.Join(t.TempDir(), "aws.pem"), key, certificate}
	if err := os.WriteFile(s.File, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return s
}

// Document is an identity document in the form of AWS.
func Document(instance, account, region string, at time.Time) string {
	return fmt.Sprintf("{\n  %q : %q,\n  %q : %q,\n  %q : %q,\n  %q : %q,\n  %q : %q\n}", "accountId", account, "instanceId", instance,
		"pendingTime", at.UTC().Format(time.RFC3339), "region", region, "version", "2017-09-30")
}

// Sign makes a proof of a document.
func (s Signer) Sign(t testing.TB, document string) string {
	t.Helper()
	signed, err := pkcs7.NewSignedData([]byte(document))
	if err != nil {
		t.Fatal(err)
	}
	signed.SetDigestAlgorithm(pkcs7.OIDDigestAlgorithmSHA256)
	if err := signed.AddSigner(s.certificate, s.key, pkcs7.SignerInfoConfig{}); err != nil {
		t.Fatal(err)
	}
	der, err := signed.Finish()
	if err != nil {
		t.Fatal(err)
	}
	return asAWSWrites(t, der)
}

// asAWSWrites writes signed data as AWS does: its length comes at the end, which BER allows and DER does not, and the text has line ends.
func asAWSWrites(t testing.TB, der []byte) string {
	t.Helper()
	var outer struct {
		Kind    asn1.RawValue
		Content asn1.RawValue
	}
	if _, err := asn1.Unmarshal(der, &outer); err != nil {
		t.Fatal(err)
	}
	ber := slices.Concat([]byte{0x30, 0x80}, outer.Kind.FullBytes, []byte{0xA0, 0x80}, outer.Content.Bytes, make([]byte, 4))
	lines := strings.Split(string(pem.EncodeToMemory(&pem.Block{Type: "PKCS7", Bytes: ber})), "\n")
	return strings.Join(lines[1:len(lines)-2], "\n")
}

// Metadata serves the metadata of one instance, version 2, whose proof this is. It returns the address, which the environment variable
// AWS_EC2_METADATA_SERVICE_ENDPOINT gives to programs.
func Metadata(t testing.TB, proof string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPut && r.URL.Path == "/latest/api/token":
			w.Header().Set("X-Aws-Ec2-Metadata-Token-Ttl-Seconds", "60")
			fmt.Fprint(w, "session")
		case r.Header.Get("X-Aws-Ec2-Metadata-Token") != "session":
			w.WriteHeader(http.StatusUnauthorized)
		case r.URL.Path == "/latest/dynamic/instance-identity/rsa2048":
			fmt.Fprint(w, proof)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}
