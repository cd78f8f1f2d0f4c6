package controlplane

import (
	"context"
	"crypto"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/certificate/csr"
	capihelper "k8s.io/kubernetes/pkg/apis/certificates"
	"k8s.io/kubernetes/pkg/controller/certificates"
	"k8s.io/kubernetes/pkg/controller/certificates/authority"

	"github.com/sqube/sqube/server/controllers"
)

const (
	// signerAccount is the service account of upstream's controllers that sign.
	signerAccount = "certificate-controller"
	// backdate and shortest are upstream's: how long before now a certificate begins, and the shortest validity that can be requested.
	backdate, shortest = 5 * time.Minute, 10 * time.Minute
)

// buildVirtualSigner builds what signs approved CertificateSigningRequests with the cluster's authority in a bubble. Upstream's controllers
// follow the authority's files, which stops the bubble's clock.
func (o *Options) buildVirtualSigner(ctx context.Context, shared controllers.Shared) (func(context.Context), error) {
	client, err := kubernetes.NewForConfig(rest.AddUserAgent(rest.CopyConfig(shared.As(signerAccount)), signerAccount))
	if err != nil {
		return nil, err
	}
	pair, err := tls.LoadX509KeyPair(shared.Cluster.CACertFile, shared.Cluster.CAKeyFile)
	if err != nil {
		return nil, fmt.Errorf("read the authority that signs certificates: %w", err)
	}
	key, ok := pair.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, errors.New("the key of the authority that signs certificates can't sign")
	}
	s := signer{client, &authority.CertificateAuthority{Certificate: pair.Leaf, PrivateKey: key}, o.manager.CSRSigningController.ClusterSigningDuration.Duration}
	controller := certificates.NewCertificateController(ctx, "csrsigning", client, shared.Informers.Certificates().V1().CertificateSigningRequests(), s.handle)
	return func(ctx context.Context) { controller.Run(ctx, 1) }, nil
}

type signer struct {
	client kubernetes.Interface
	ca     *authority.CertificateAuthority
	ttl    time.Duration // at most
}

// validateClient checks the usages of a client's certificate.
func validateClient(usages []certificatesv1.KeyUsage) error {
	for _, usage := range usages {
		switch usage {
		case certificatesv1.UsageClientAuth, certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment:
		default:
			return fmt.Errorf("a client certificate can't have the usage %s", usage)
		}
	}
	if !slices.Contains(usages, certificatesv1.UsageClientAuth) {
		return fmt.Errorf("a client certificate must have the usage %s", certificatesv1.UsageClientAuth)
	}
	return nil
}

// handle signs an approved request, or marks it as failed.
func (s signer) handle(ctx context.Context, request *certificatesv1.CertificateSigningRequest) error {
	if !certificates.IsCertificateRequestApproved(request) || certificates.HasTrueCondition(request, certificatesv1.CertificateFailed) {
		return nil
	}
	parsed, usages, err := parse(request)
	if err != nil {
		return err
	}
	switch request.Spec.SignerName {
	case certificatesv1.KubeletServingSignerName:
		err = capihelper.ValidateKubeletServingCSR(parsed, sets.NewString(usages...))
	case certificatesv1.KubeAPIServerClientKubeletSignerName:
		err = capihelper.ValidateKubeletClientCSR(parsed, sets.NewString(usages...))
	case certificatesv1.KubeAPIServerClientSignerName:
		err = validateClient(request.Spec.Usages)
	default:
		return nil
	}
	if err != nil {
		request.Status.Conditions = append(slices.Clip(request.Status.Conditions), certificatesv1.CertificateSigningRequestCondition{
			Type: certificatesv1.CertificateFailed, Status: corev1.ConditionTrue, Reason: "SignerValidationFailure", Message: err.Error(), LastUpdateTime: metav1.Now(),
		})
	} else {
		ttl := s.ttl
		if seconds := request.Spec.ExpirationSeconds; seconds != nil {
			ttl = min(s.ttl, max(shortest, csr.ExpirationSecondsToDuration(*seconds)))
		}
		policy := authority.PermissiveSigningPolicy{TTL: ttl, Usages: request.Spec.Usages, Backdate: backdate, Short: 8 * time.Hour}
		der, err := s.ca.Sign(parsed.Raw, policy)
		if err != nil {
			return fmt.Errorf("sign %s: %w", request.Name, err)
		}
		request.Status.Certificate = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	}
	_, err = s.client.CertificatesV1().CertificateSigningRequests().UpdateStatus(ctx, request, metav1.UpdateOptions{})
	return err
}
