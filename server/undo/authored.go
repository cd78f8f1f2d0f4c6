package undo

import (
	"encoding/base64"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
)

// keptOut returns why an undo never writes an object, whoever asks for it, "" if it may. The versions are what the object is and becomes.
//
// An undo writes as its user. So it leaves alone what the server derives from the user who writes: it would lend its user's name to
// whoever wrote the object first. And it never makes a token valid again that was revoked by deleting or changing its Secret.
// TestUndoAuthors finds what the server derives.
func keptOut(k key, versions ...map[string]any) string {
	switch {
	case k.group == "certificates.k8s.io" && k.resource == "certificatesigningrequests":
		return "it would become a request of whoever undoes: who wants the certificate must ask again"
	case k.group == "certificates.k8s.io" && k.resource == "podcertificaterequests":
		return "only the kubelet of its pod may ask for this certificate, and asks again"
	}
	for _, object := range versions {
		switch {
		case object == nil:
		case namesAuthor(object):
			return "spec.username and spec.groups say who made it, and would name whoever undoes: its author must make it again"
		case k.group == "" && k.resource == "secrets" && holdsToken(k.name, object):
			return "a token that was revoked stays so: issue a new one"
		}
	}
	return ""
}

// namesAuthor reports whether an object repeats its author as CertificateSigningRequests do, and custom resources like them.
func namesAuthor(object map[string]any) bool {
	spec, _ := object["spec"].(map[string]any)
	name, _ := spec["username"].(string)
	_, groups := spec["groups"].([]any)
	return name != "" && groups
}

// holdsToken reports whether a Secret holds a token that is valid only as long as the Secret holds it.
func holdsToken(name string, secret map[string]any) bool {
	kind, _ := secret["type"].(string)
	if slices.Contains([]string{string(corev1.SecretTypeServiceAccountToken), string(bootstrapapi.SecretTypeBootstrapToken)}, kind) {
		return true
	}
	// The authenticator of service accounts does not look at the type.
	token, _, _ := unstructured.NestedString(secret, "data", corev1.ServiceAccountTokenKey)
	text, err := base64.StdEncoding.DecodeString(token)
	if err != nil {
		return false
	}
	parts := strings.Split(strings.TrimSpace(string(text)), ".")
	if len(parts) != 3 {
		return false
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return false
	}
	var claims struct {
		Secret string `json:"kubernetes.io/serviceaccount/secret.name"`
	}
	return json.Unmarshal(payload, &claims) == nil && claims.Secret == name
}
