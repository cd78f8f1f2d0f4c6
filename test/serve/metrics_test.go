package serve

import (
	"crypto/x509"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"k8s.io/client-go/util/cert"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// certificateMetric is a line of /metrics about the certificate in a file.
var certificateMetric = regexp.MustCompile(`(?m)^sqube_certificate_expiration_timestamp_seconds\{file="([^"]*)"\} (\S+)$`)

// TestCertificateMetrics compares the metrics with the certificates that a server uses, its own and given ones. A certificate
// that can no longer be read counts as expired.
func TestCertificateMetrics(t *testing.T) {
	t.Parallel()
	given, named := newPair(t, "127.0.0.1"), newPair(t, "named.example.com")
	s := serve(t, []string{"--tls-cert-file", given.cert, "--tls-private-key-file", given.key, "--tls-sni-cert-key", named.cert + "," + named.key})
	c := client(t, s.Kubeconfig)
	files := []string{given.cert, named.cert}
	for _, own := range []string{"ca", "front-proxy-ca", "apiserver", "apiserver-kubelet-client", "front-proxy-client"} {
		files = append(files, filepath.Join(s.DataDir, "pki", own+".crt"))
	}
	want := map[string]int64{}
	for _, file := range files {
		certs, err := cert.CertsFromFile(file)
		harness.Must(t, err)
		first := slices.MinFunc(certs, func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) })
		want[file] = first.NotAfter.Unix()
	}
	found := func() map[string]int64 {
		ends := map[string]int64{}
		for _, line := range certificateMetric.FindAllStringSubmatch(sqube.Metrics(t, c), -1) {
			end, err := strconv.ParseFloat(line[2], 64)
			harness.Must(t, err)
			ends[line[1]] = int64(end)
		}
		return ends
	}
	if ends := found(); !maps.Equal(ends, want) {
		t.Errorf("the metrics have %v, the files %v", ends, want)
	}
	harness.Must(t, os.Remove(named.cert))
	want[named.cert] = 0
	if ends := found(); !maps.Equal(ends, want) {
		t.Errorf("without %s the metrics have %v", named.cert, ends)
	}
}
