package controlplane

import (
	"context"
	"crypto/x509"
	"fmt"
	"net"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	capihelper "k8s.io/kubernetes/pkg/apis/certificates"
	"k8s.io/kubernetes/pkg/controller/certificates"
	netutils "k8s.io/utils/net"

	"github.com/sqube/sqube/server/bootstrap"
	"github.com/sqube/sqube/server/controllers"
)

// controlPlaneLabel marks nodes that may have the addresses of an API server. Kubelets can't set it on their own Nodes.
const controlPlaneLabel = "node-role.kubernetes.io/control-plane"

// servingApprover approves serving certificates of kubelets (serverTLSBootstrap), which upstream does not. A kubelet gets one for its
// Node's name and addresses, unless an address belongs to another Node or to an API server.
func servingApprover() controllers.Controller {
	return controllers.Controller{
		Name: bootstrap.ServingApprover,
		Build: func(ctx context.Context, shared controllers.Shared) (func(context.Context), error) {
			client, err := kubernetes.NewForConfig(rest.AddUserAgent(rest.CopyConfig(shared.As(bootstrap.ServingApprover)), bootstrap.ServingApprover))
			if err != nil {
				return nil, err
			}
			a := approver{client}
			controller := certificates.NewCertificateController(ctx, "kubelet-serving-certificate-approver", client,
				shared.Informers.Certificates().V1().CertificateSigningRequests(), a.handle)
			return func(ctx context.Context) { controller.Run(ctx, 1) }, nil
		},
	}
}

type approver struct{ client kubernetes.Interface }

// handle approves valid requests. Others remain for an administrator; the log says why.
func (a approver) handle(ctx context.Context, csr *certificatesv1.CertificateSigningRequest) error {
	approved, denied := certificates.GetCertApprovalCondition(&csr.Status)
	if csr.Spec.SignerName != certificatesv1.KubeletServingSignerName || approved || denied {
		return nil
	}
	request, usages, err := parse(csr)
	if err != nil {
		return err
	}
	if err := capihelper.ValidateKubeletServingCSR(request, sets.NewString(usages...)); err != nil {
		return certificates.IgnorableError("%s is not approved: %v", csr.Name, err)
	}
	if request.Subject.CommonName != csr.Spec.Username {
		return certificates.IgnorableError("%s is not approved: %s asks for %s", csr.Name, csr.Spec.Username, request.Subject.CommonName)
	}
	if err := a.check(ctx, strings.TrimPrefix(csr.Spec.Username, "system:node:"), request); err != nil {
		return err
	}
	csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "AutoApproved",
		Message: "The names and addresses are those of the kubelet's Node.",
	})
	_, err = a.client.CertificatesV1().CertificateSigningRequests().UpdateApproval(ctx, csr.Name, csr, metav1.UpdateOptions{})
	return err
}

// parse returns what is requested, and its usages.
func parse(csr *certificatesv1.CertificateSigningRequest) (request *x509.CertificateRequest, usages []string, err error) {
	if request, err = capihelper.ParseCSR(csr.Spec.Request); err != nil {
		return nil, nil, certificates.IgnorableError("%s is not a certificate request: %v", csr.Name, err)
	}
	for _, usage := range csr.Spec.Usages {
		usages = append(usages, string(usage))
	}
	return request, usages, nil
}

// check returns an error unless the requested names and addresses are the node's. It reads from the server, not from an informer, since
// a kubelet sends the request right after it has reported its addresses.
func (a approver) check(ctx context.Context, name string, request *x509.CertificateRequest) error {
	node, err := a.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err // retried: the Node may exist soon
	}
	own := addresses(node)
	for _, dns := range request.DNSNames {
		if dns != name {
			return certificates.IgnorableError("no certificate for %s is approved: it is not the name of Node %s", dns, name)
		}
	}
	nodes, err := a.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	taken, err := a.servers(ctx)
	if err != nil {
		return err
	}
	if _, trusted := node.Labels[controlPlaneLabel]; trusted {
		taken = nil
	}
	for i := range nodes.Items {
		if nodes.Items[i].Name != name {
			taken = append(taken, addresses(&nodes.Items[i])...)
		}
	}
	for _, ip := range request.IPAddresses {
		if !contains(own, ip) {
			return fmt.Errorf("no certificate for %s is approved: Node %s does not have that address", ip, name)
		}
		if contains(taken, ip) {
			return certificates.IgnorableError("no certificate for %s is approved: Node %s has the address of another Node or of an API server; label it %s if it is trusted", ip, name, controlPlaneLabel)
		}
	}
	return nil
}

func addresses(node *corev1.Node) []net.IP {
	var ips []net.IP
	for _, address := range node.Status.Addresses {
		if ip := netutils.ParseIPSloppy(address.Address); ip != nil {
			ips = append(ips, ip)
		}
	}
	return ips
}

// servers are the addresses of the API servers, and that of their Service.
func (a approver) servers(ctx context.Context) ([]net.IP, error) {
	var ips []net.IP
	slice, err := a.client.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).Get(ctx, "kubernetes", metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	for _, endpoint := range slice.Endpoints {
		for _, address := range endpoint.Addresses {
			ips = append(ips, netutils.ParseIPSloppy(address))
		}
	}
	service, err := a.client.CoreV1().Services(metav1.NamespaceDefault).Get(ctx, "kubernetes", metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	for _, address := range service.Spec.ClusterIPs {
		ips = append(ips, netutils.ParseIPSloppy(address))
	}
	return ips, nil
}

func contains(ips []net.IP, ip net.IP) bool { return slices.ContainsFunc(ips, ip.Equal) }
