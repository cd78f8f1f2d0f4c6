package server

import (
	"cmp"
	"time"

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/component-base/metrics"
)

// certificates is the metric of when the certificates of the servers in this process expire.
var certificates = &certificateCollector{}

var certificateExpiration = metrics.NewDesc("sqube_certificate_expiration_timestamp_seconds",
	"When a certificate that the server uses expires, in Unix time; the first to expire if a file holds several; 0 if the file can't be read.",
	[]string{"file"}, nil, metrics.ALPHA, "")

// certificateCollector reads the files on each scrape, since they change while a server runs.
type certificateCollector struct {
	metrics.BaseStableCollector
	instances[*Server]
}

// DescribeWithStability implements metrics.StableCollector.
func (c *certificateCollector) DescribeWithStability(descs chan<- *metrics.Desc) {
	descs <- certificateExpiration
}

// CollectWithStability implements metrics.StableCollector.
func (c *certificateCollector) CollectWithStability(found chan<- metrics.Metric) {
	seen := map[string]bool{} // servers may share files
	for _, s := range c.list() {
		for _, file := range s.certificateFiles() {
			if seen[file] {
				continue
			}
			seen[file] = true
			end := 0.0
			if at, err := earliestExpiry(file); err == nil {
				end = float64(at.Unix())
			}
			found <- metrics.NewLazyConstMetric(certificateExpiration, metrics.GaugeValue, end, file)
		}
	}
}

// certificateFiles are the files of the certificates that the server signs with or presents.
func (s *Server) certificateFiles() []string {
	files := []string{s.pki.CA.CertFile, s.pki.FrontProxyCA.CertFile, s.pki.Serving.CertFile,
		cmp.Or(s.options.Kubelet.TLSClientConfig.CertFile, s.pki.KubeletClient.CertFile), s.options.Aggregation.ClientCertFile}
	if given := s.options.Serving.ServerCert.CertKey.CertFile; given != "" {
		files = append(files, given)
	}
	for _, named := range s.options.sni() {
		files = append(files, named.CertFile)
	}
	return files
}

// earliestExpiry returns when the first certificate in a file expires.
func earliestExpiry(file string) (time.Time, error) {
	certs, err := certutil.CertsFromFile(file)
	if err != nil {
		return time.Time{}, err
	}
	end := certs[0].NotAfter
	for _, cert := range certs[1:] {
		if cert.NotAfter.Before(end) {
			end = cert.NotAfter
		}
	}
	return end, nil
}
