package fleet

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/sqube/sqube/server/fleet/v1alpha1"
)

// pass is a bearer token for one cluster, which the host gives to a user of its own. It says whom the cluster sees. Unlike a certificate, it
// ends when its holder loses the rights with which it was requested, and it is checked without waking the cluster.
type pass struct {
	Database string              `json:"d"`
	User     string              `json:"u"`
	Groups   []string            `json:"g,omitempty"`
	Extra    map[string][]string `json:"e,omitempty"`
	Expires  int64               `json:"x"` // in Unix time
	Holder   holder              `json:"h"`
	Rights   []right             `json:"r"`
}

// holder is the user of the host who has requested a pass.
type holder struct {
	Name   string              `json:"n"`
	UID    string              `json:"i,omitempty"`
	Groups []string            `json:"g,omitempty"`
	Extra  map[string][]string `json:"e,omitempty"`
}

func holderOf(who user.Info) holder {
	return holder{who.GetName(), who.GetUID(), slices.Clone(who.GetGroups()), maps.Clone(who.GetExtra())}
}

func (h holder) user() user.Info {
	return &user.DefaultInfo{Name: h.Name, UID: h.UID, Groups: h.Groups, Extra: h.Extra}
}

// right is to use a verb of an object of the fleet, in the namespace of the cluster.
type right struct {
	Verb        string `json:"v"`
	Resource    string `json:"r"`
	Subresource string `json:"s,omitempty"`
	Name        string `json:"n"`
}

func (one right) has(ctx context.Context, a authorizer.Authorizer, who user.Info, namespace string) bool {
	decision, _, err := a.Authorize(ctx, authorizer.AttributesRecord{
		User: who, Verb: one.Verb, Namespace: namespace, APIGroup: v1alpha1.GroupVersion.Group, APIVersion: v1alpha1.GroupVersion.Version,
		Resource: one.Resource, Subresource: one.Subresource, Name: one.Name, ResourceRequest: true,
	})
	return err == nil && decision == authorizer.DecisionAllow
}

// holderExtra is the extra field with the name of the holder of a pass, for the cluster's history and audit.
const holderExtra = "fleet.sqube.io/holder"

// user returns whom the cluster sees.
func (p *pass) user() user.Info {
	who := &user.DefaultInfo{Name: p.User, Groups: slices.Clone(p.Groups), Extra: maps.Clone(p.Extra)}
	if !slices.Contains(who.Groups, user.AllAuthenticated) {
		who.Groups = append(who.Groups, user.AllAuthenticated)
	}
	if who.Extra == nil {
		who.Extra = map[string][]string{}
	}
	who.Extra[holderExtra] = []string{p.Holder.Name}
	return who
}

// passes makes and reads passes.
type passes struct{ key []byte }

// newPasses returns those of a fleet with a secret.
func newPasses(secret []byte) *passes {
	key, _ := hkdf.Key(sha256.New, secret, nil, "sqube fleet passes", sha256.Size) // fails only for keys that are too long
	return &passes{key}
}

const passPrefix = "sqube-pass-"

func (p *passes) prove(text string) []byte {
	mac := hmac.New(sha256.New, p.key)
	mac.Write([]byte(text))
	return mac.Sum(nil)
}

// write returns the token of a pass.
func (p *passes) write(one pass) (string, error) {
	content, err := json.Marshal(one)
	if err != nil {
		return "", err
	}
	text := base64.RawURLEncoding.EncodeToString(content)
	return passPrefix + text + "." + base64.RawURLEncoding.EncodeToString(p.prove(text)), nil
}

// read returns the pass of a token, nil if it is none that is valid.
func (p *passes) read(token string, now time.Time) *pass {
	rest, ok := strings.CutPrefix(token, passPrefix)
	if !ok {
		return nil
	}
	text, proof, _ := strings.Cut(rest, ".")
	given, err := base64.RawURLEncoding.DecodeString(proof)
	if err != nil || !hmac.Equal(given, p.prove(text)) {
		return nil
	}
	content, err := base64.RawURLEncoding.DecodeString(text)
	found := &pass{}
	if err != nil || json.Unmarshal(content, found) != nil || now.Unix() >= found.Expires {
		return nil
	}
	return found
}

// someKey returns a public key whose private key nobody has.
func someKey() []byte {
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader) // never fails
	text, _ := x509.MarshalPKIXPublicKey(key.Public())        // never fails for this key
	return text
}
