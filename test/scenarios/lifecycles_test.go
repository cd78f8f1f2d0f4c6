package scenarios

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509/pkix"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"github.com/sqube/sqube/test/harness/fakenode"
)

var lifecycles = []scenario{
	{"namespace-deletion", "Namespace: deletion with its content, conditions that show what a finalizer blocks", namespaceDeletion},
	{"service", "Service: EndpointSlices and Endpoints of ready and unready Pods, of a changed selector, mirrored", service},
	{"csr", "CertificateSigningRequest: approval, signing, use of the certificate; denial", signing},
	{"token-secret", "Secret: a service account's token is filled in, is used, and is invalid once the account is deleted", tokenSecret},
	{"ttl", "Job: deleted with its Pods once its TTL after finishing has expired", ttl},
	{"garbage", "Owners: background, foreground and orphaning deletion; orphans are adopted", garbage},
}

// held is a finalizer that only the scenario removes.
const held = `["scenario/held"]`

// release removes the finalizers of an object.
func (u *user) release(kind, name string) {
	u.Helper()
	u.run("patch", kind, name, "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
}

// gone waits until there is no such object.
func (u *user) gone(kind, name string) {
	u.Helper()
	u.until(kind+" "+name+" is gone", func() (string, bool) {
		out := u.run("get", kind, name, "--ignore-not-found")
		return out, out == ""
	})
}

func namespaceDeletion(u *user) {
	u.apply(deployment("web", 2, "web:1"))
	u.rolledOut("deployment/web")
	u.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: held, finalizers: " + held + "}}")
	u.run("delete", "namespace", u.namespace, "--wait=false")
	u.until("it shows what is left", func() (string, bool) {
		conditions := u.field("namespace", u.namespace, "range .status.conditions[*]}{.type}={.status} {.message}; {end")
		return conditions, strings.Contains(conditions, "NamespaceContentRemaining=True Some resources are remaining: configmaps. has 1 resource instances") &&
			strings.Contains(conditions, "NamespaceFinalizersRemaining=True Some content in the namespace has finalizers remaining: scenario/held in 1 resource instances")
	})
	if pods := u.pods(""); len(pods) > 0 {
		u.Errorf("Pods are left:\n%s", show(pods))
	}
	u.contains(u.refused("{apiVersion: v1, kind: ConfigMap, metadata: {name: late}}"), "because it is being terminated")
	u.release("configmap", "held")
	u.gone("namespace", u.namespace)
}

func service(u *user) {
	u.apply(deployment("web", 2, "web:1"))
	u.apply(deployment("broken", 1, fakenode.MissingImage))
	u.apply(`
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{name: http, port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: outside}
spec: {clusterIP: None, ports: [{name: http, port: 80}]}
---
apiVersion: v1
kind: Endpoints
metadata: {name: outside}
subsets: [{addresses: [{ip: 192.0.2.1}], ports: [{name: http, port: 80}]}]
`)
	u.endpoints("web", 2, true)
	u.until("its Endpoints have them too", func() (string, bool) {
		out := u.run("get", "endpoints", "web", "--ignore-not-found", "-o", "jsonpath={.subsets[*].addresses[*].targetRef.name}")
		return out, strings.Count(out, "web-") == 2
	})
	u.endpoints("outside", 1, true)
	u.run("scale", "deployment/web", "--replicas=4")
	u.endpoints("web", 4, true)
	u.run("patch", "service", "web", "--type=merge", "-p", `{"spec":{"selector":{"app":"broken"}}}`)
	u.endpoints("web", 1, false)
	u.run("delete", "service", "web")
	u.endpoints("web", 0, false)
	u.gone("endpoints", "web")
}

// endpoints waits until the EndpointSlices of a Service have count endpoints, all of them ready or none.
func (u *user) endpoints(service string, count int, ready bool) {
	u.Helper()
	u.until(fmt.Sprintf("Service %s has %d endpoints, ready: %t", service, count, ready), func() (string, bool) {
		list, err := u.DiscoveryV1().EndpointSlices(u.namespace).List(u.Context(), metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + service})
		if err != nil {
			return err.Error(), false
		}
		var endpoints []discoveryv1.Endpoint
		for i := range list.Items {
			endpoints = append(endpoints, list.Items[i].Endpoints...)
		}
		same := !slices.ContainsFunc(endpoints, func(e discoveryv1.Endpoint) bool {
			return e.Conditions.Ready != nil && *e.Conditions.Ready != ready
		})
		return fmt.Sprint(endpoints), len(endpoints) == count && same
	})
}

func signing(u *user) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		u.Fatal(err)
	}
	asked, err := cert.MakeCSR(private, &pkix.Name{CommonName: "jane", Organization: []string{"developers"}}, nil, nil)
	if err != nil {
		u.Fatal(err)
	}
	request := base64.StdEncoding.EncodeToString(asked)
	for _, name := range []string{"csr-approved", "csr-denied"} {
		u.apply(fmt.Sprintf(`
apiVersion: certificates.k8s.io/v1
kind: CertificateSigningRequest
metadata: {name: %s}
spec: {request: %s, signerName: kubernetes.io/kube-apiserver-client, usages: [client auth], expirationSeconds: 3600}
`, name, request))
	}
	u.contains(u.run("get", "csr", "csr-approved"), "Pending")
	u.run("certificate", "deny", "csr-denied")
	u.run("certificate", "approve", "csr-approved")
	u.until("it is issued", func() (string, bool) {
		out := u.run("get", "csr", "csr-approved")
		return out, strings.Contains(out, "Approved,Issued")
	})
	certificate, err := base64.StdEncoding.DecodeString(u.field("csr", "csr-approved", ".status.certificate"))
	if err != nil {
		u.Fatal(err)
	}
	key, err := keyutil.MarshalPrivateKeyToPEM(private)
	if err != nil {
		u.Fatal(err)
	}
	config := rest.AnonymousClientConfig(u.config)
	config.CertData, config.KeyData = certificate, key
	who, err := whoAmI(u, config)
	if err != nil || who.Username != "jane" || !slices.Contains(who.Groups, "developers") {
		u.Errorf("the certificate belongs to %v, %v", who, err)
	}
	if out := u.run("get", "csr", "csr-denied"); !strings.Contains(out, "Denied") || strings.Contains(out, "Issued") {
		u.Errorf("the other one: %s", out)
	}
}

// whoAmI returns the user of the credentials, according to the server.
func whoAmI(u *user, config *rest.Config) (authenticationv1.UserInfo, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return authenticationv1.UserInfo{}, err
	}
	review, err := client.AuthenticationV1().SelfSubjectReviews().Create(u.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return authenticationv1.UserInfo{}, err
	}
	return review.Status.UserInfo, nil
}

func tokenSecret(u *user) {
	u.run("create", "serviceaccount", "robot")
	u.apply(`
apiVersion: v1
kind: Secret
metadata: {name: robot, annotations: {kubernetes.io/service-account.name: robot}}
type: kubernetes.io/service-account-token
`)
	var token []byte
	u.until("it has a token", func() (string, bool) {
		secret, err := u.CoreV1().Secrets(u.namespace).Get(u.Context(), "robot", metav1.GetOptions{})
		if err != nil {
			return err.Error(), false
		}
		token = secret.Data["token"]
		return fmt.Sprint(secret.Annotations), len(token) > 0 && len(secret.Data["ca.crt"]) > 0 && string(secret.Data["namespace"]) == u.namespace
	})
	config := rest.AnonymousClientConfig(u.config)
	config.BearerToken = string(token)
	// The server's own informer may still have the Secret without its token, like kube-apiserver's.
	u.until("the token is accepted", func() (string, bool) {
		who, err := whoAmI(u, config)
		return fmt.Sprint(who, err), err == nil && who.Username == "system:serviceaccount:token-secret:robot"
	})
	u.run("delete", "serviceaccount", "robot")
	u.gone("secret", "robot")
	u.until("the token is no longer valid", func() (string, bool) {
		_, err := whoAmI(u, config)
		return errorText(err), apierrors.IsUnauthorized(err)
	})
}

func ttl(u *user) {
	u.apply(job("short", "simnodes.sqube.io/run: exit 0", "ttlSecondsAfterFinished: 1"))
	u.apply(job("failed", "simnodes.sqube.io/run: exit 1", "ttlSecondsAfterFinished: 1", "backoffLimit: 0"))
	u.apply(job("kept", "simnodes.sqube.io/run: exit 0", "completions: 1"))
	u.event("Completed", "short")
	u.gone("job", "short")
	u.gone("job", "failed")
	u.run("wait", "--for=condition=Complete", "job/kept", "--timeout=60s")
	u.until("their Pods are gone", func() (string, bool) {
		pods := u.pods("")
		return show(pods), len(pods) == 1 && pods[0].Labels["job-name"] == "kept"
	})
}

func garbage(u *user) {
	for _, name := range []string{"background", "foreground", "orphan"} {
		u.apply(deployment(name, 2, "web:1"))
	}
	for _, name := range []string{"background", "foreground", "orphan"} {
		u.rolledOut("deployment/" + name)
	}
	u.run("delete", "deployment", "background", "--cascade=background")
	u.gone("replicasets", "--selector=app=background")
	u.gone("pods", "--selector=app=background")

	// In the foreground the owner stays until its dependents are gone.
	replicas := u.run("get", "replicasets", "-l", "app=foreground", "-o", "name")
	u.run("patch", replicas, "--type=json", "-p", `[{"op":"add","path":"/metadata/finalizers","value":`+held+`}]`)
	u.run("delete", "deployment", "foreground", "--cascade=foreground", "--wait=false")
	u.gone("pods", "--selector=app=foreground")
	u.contains(u.field("deployment", "foreground", ".metadata.finalizers"), "foregroundDeletion")
	u.run("patch", replicas, "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
	u.gone("deployment", "foreground")
	u.gone("replicasets", "--selector=app=foreground")

	before := u.field("pods", "--selector=app=orphan", ".items[*].metadata.uid")
	u.run("delete", "deployment", "orphan", "--cascade=orphan")
	u.until("the ReplicaSet has no owner", func() (string, bool) {
		owners := u.field("replicasets", "--selector=app=orphan", ".items[*].metadata.ownerReferences")
		return owners, owners == ""
	})
	u.apply(deployment("orphan", 2, "web:1"))
	u.rolledOut("deployment/orphan")
	u.contains(u.field("replicasets", "--selector=app=orphan", ".items[*].metadata.ownerReferences[0].name"), "orphan")
	if after := u.field("pods", "--selector=app=orphan", ".items[*].metadata.uid"); after != before {
		u.Errorf("the Pods are %s, but were %s before", after, before)
	}
}
