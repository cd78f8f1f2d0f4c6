package serve

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	undos "github.com/sqube/sqube/server/undo"
	"github.com/sqube/sqube/sqlstore/fieldpath"
	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/everykind"
	"github.com/sqube/sqube/test/harness/sqube"
)

// TestUndoAuthors creates, changes and deletes an object of every kind that can be created. What the server stores of it must not depend
// on who writes, or else an undo leaves the object alone: it would lend its user's name. All others come back, with a reason for each that
// does not.
func TestUndoAuthors(t *testing.T) {
	t.Parallel()
	s := serve(t, everykind.MoreFlags)
	jane, joe := fillerAs(t, s.Kubeconfig, "jane"), fillerAs(t, s.Kubeconfig, "joe")
	all, err := everykind.All()
	harness.Must(t, err)
	derived := map[schema.GroupKind]bool{}
	for _, object := range all {
		if dependsOnAuthor(t, jane, joe, object) {
			derived[object.GroupVersionKind().GroupKind()] = true
		}
	}
	for _, kind := range creatable(t, jane) {
		if !slices.ContainsFunc(all, func(o *unstructured.Unstructured) bool { return o.GroupVersionKind().GroupKind() == kind }) {
			t.Errorf("everykind has no %s", kind)
		}
	}
	if want := map[schema.GroupKind]bool{{Group: "certificates.k8s.io", Kind: "CertificateSigningRequest"}: true}; !maps.Equal(derived, want) {
		t.Errorf("who writes decides what is stored of %v, want %v: see keptOut in server/undo", derived, want)
	}
	bringsBack(t, s, jane, all)
	keepsRevoked(t, s)
}

// fillerAs creates objects as an administrator of that name.
func fillerAs(t *testing.T, kubeconfig, name string) *everykind.Filler {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	harness.Must(t, err)
	config.QPS, config.WarningHandler = -1, rest.NoWarnings{}
	config.Impersonate = rest.ImpersonationConfig{UserName: name, UID: "uid-" + name, Groups: []string{"system:masters", name + "s"}, Extra: map[string][]string{"example.com/desk": {name}}}
	f, err := everykind.New(config)
	harness.Must(t, err)
	return f
}

// creatable returns the kinds of all objects that can be created and read; not the Transaction, which is none.
func creatable(t *testing.T, f *everykind.Filler) (kinds []schema.GroupKind) {
	t.Helper()
	_, lists, err := f.Client.Discovery().ServerGroupsAndResources()
	if len(lists) == 0 {
		t.Fatal(err) // one group, of an APIService, is not there
	}
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		harness.Must(t, err)
		for _, r := range list.APIResources {
			if !strings.Contains(r.Name, "/") && slices.Contains(r.Verbs, "create") && slices.Contains(r.Verbs, "get") && r.Kind != "Transaction" {
				kinds = append(kinds, version.WithKind(r.Kind).GroupKind())
			}
		}
	}
	return kinds
}

// dependsOnAuthor creates an object, as jane in the end, changes it, and reports whether anything but chance makes a difference between
// what jane and joe write.
func dependsOnAuthor(t *testing.T, jane, joe *everykind.Filler, object *unstructured.Unstructured) bool {
	t.Helper()
	ctx := t.Context()
	create := func(f *everykind.Filler) (*unstructured.Unstructured, error) {
		return f.Make(ctx, object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	}
	if object.GetKind() == "ServiceAccount" && object.GetName() == "default" {
		harness.Retry(t, "a controller makes it in every namespace, and not between two of the writes below", func() error {
			objects, err := jane.Of(object)
			if err == nil {
				_, err = objects.Get(ctx, object.GetName(), metav1.GetOptions{})
			}
			return err
		})
	}
	var differ []string
	first, err := create(jane)
	if !apierrors.IsAlreadyExists(err) {
		harness.Must(t, err)
		differ = differences(t, first, create, jane, joe)
		_, err = jane.Make(ctx, object, metav1.CreateOptions{})
		harness.Must(t, err)
	}
	change := func(f *everykind.Filler) (*unstructured.Unstructured, error) {
		objects, err := f.Of(object)
		harness.Must(t, err)
		return objects.Patch(ctx, object.GetName(), types.MergePatchType, []byte(`{"metadata":{"annotations":{"changed":"yes"}}}`), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
	}
	first, err = change(jane)
	harness.Must(t, err)
	differ = append(differ, differences(t, first, change, jane, joe)...)
	if len(differ) > 0 {
		t.Logf("%s: who writes decides %v", object.GetKind(), differ)
	}
	return len(differ) > 0
}

var element = regexp.MustCompile(`\[[^]]*\]`)

// differences returns in which fields joe's object differs from the first one of jane, unless her next one does so, too.
func differences(t *testing.T, first *unstructured.Unstructured, write func(*everykind.Filler) (*unstructured.Unstructured, error), jane, joe *everykind.Filler) (paths []string) {
	t.Helper()
	of := func(f *everykind.Filler) (paths []string) {
		object, err := write(f)
		harness.Must(t, err)
		object.SetManagedFields(first.GetManagedFields())
		for _, d := range fieldpath.DifferencesOf(first.Object, object.Object) {
			paths = append(paths, element.ReplaceAllString(d.Path, "[]"))
		}
		return paths
	}
	joes := of(joe)
	chance := append(of(jane), ".metadata.creationTimestamp") // jane's comes later, so it has other times, too
	return slices.DeleteFunc(joes, func(path string) bool { return slices.Contains(chance, path) })
}

// Why an undo leaves objects alone.
const (
	byAuthor  = "it would become a request of whoever undoes: who wants the certificate must ask again"
	byKubelet = "only the kubelet of its pod may ask for this certificate, and asks again"
	isRevoked = "a token that was revoked stays so: issue a new one"
	isEnding  = "it is being deleted: its finalizers must go first"
)

// kept are the objects that it leaves.
var kept = map[string]string{
	"CertificateSigningRequest jane": byAuthor, "PodCertificateRequest web-1": byKubelet, "Secret robot-token": isRevoked, "Secret bootstrap-token-abcdef": isRevoked,
	"ConfigMap going": isEnding, "ServiceCIDR more": isEnding, "ServiceAccount default": "nothing to do: it is as it was", // a controller was faster
}

// bringsBack deletes all objects but namespaces, as jane, and brings back what may come back, as root.
func bringsBack(t *testing.T, s *sqube.Server, jane *everykind.Filler, all []*unstructured.Unstructured) {
	t.Helper()
	ctx := t.Context()
	_, err := jane.Client.CoreV1().Pods("prod").Patch(ctx, "web-1", types.StrategicMergePatchType,
		[]byte(`{"spec":{"ephemeralContainers":[{"name":"debug","image":"i"}]}}`), metav1.PatchOptions{}, "ephemeralcontainers")
	harness.Must(t, err)
	before, err := jane.Client.CoreV1().ConfigMaps("prod").List(ctx, metav1.ListOptions{})
	harness.Must(t, err)
	now := int64(0)
	for _, object := range slices.Backward(all) {
		if object.GetKind() == "Namespace" { // which would take all others along
			continue
		}
		objects, err := jane.Of(object)
		harness.Must(t, err)
		err = objects.Delete(ctx, object.GetName(), metav1.DeleteOptions{GracePeriodSeconds: &now})
		if !apierrors.IsNotFound(err) {
			harness.Must(t, err)
		}
	}
	answer := undoes(t, s, "--user", "jane", "--after-revision", before.ResourceVersion)
	steps := map[string]*undos.Step{}
	for i, step := range answer.Status.Plan {
		steps[step.Object.Kind+" "+step.Object.Name] = &answer.Status.Plan[i]
	}
	for _, object := range all {
		name := object.GetKind() + " " + object.GetName()
		step := steps[name]
		switch {
		case object.GetKind() == "Namespace":
		case step == nil:
			t.Errorf("no step names %s", name)
		case step.Action == undos.Leave && step.Reason == kept[name]:
		case name == "ServiceAccount default" && step.Action == undos.Leave && step.Reason == "a controller makes it in every namespace":
		case step.Result != undos.Done || kept[name] != "":
			t.Errorf("%s: %s, %s, %s %s", name, step.Action, step.Reason, step.Result, step.Message)
		}
	}
	if want := "admission sees kubernetes-admin as the author of what is created, not who made it before"; !slices.Contains(answer.Status.Notes, want) {
		t.Errorf("the notes are %q", answer.Status.Notes)
	}
	if w := steps["Pod web-1"].Warnings; len(w) != 1 || !strings.Contains(w[0], "ephemeral containers") {
		t.Errorf("of the Pod with an ephemeral container, it warns %q", w)
	}
}

// undoes applies an undo as the administrator.
func undoes(t *testing.T, s *sqube.Server, args ...string) (answer undos.Undo) {
	t.Helper()
	stdout, stderr, _ := sqube.Run(t, append([]string{"undo", "--kubeconfig", s.Kubeconfig, "--apply", "-o", "json"}, args...))
	if err := json.Unmarshal([]byte(stdout), &answer); err != nil {
		t.Fatalf("%v: %s %s", err, stdout, stderr)
	}
	return answer
}

// keepsRevoked names what an undo never writes, and looks at tokens that were bound to what comes back.
func keepsRevoked(t *testing.T, s *sqube.Server) {
	t.Helper()
	ctx, c := t.Context(), client(t, s.Kubeconfig)
	leaves := func(reason string, args ...string) {
		t.Helper()
		answer := undoes(t, s, args...)
		if plan := answer.Status.Plan; len(plan) != 1 || plan[0].Action != undos.Leave || plan[0].Reason != reason {
			t.Errorf("undo %q is %+v", args, plan)
		}
	}
	leaves(byAuthor, "csr/jane", "--force")
	leaves(isRevoked, "secret/robot-token", "-n", "prod", "--force")
	leaves(isRevoked, "secret/bootstrap-token-abcdef", "-n", "kube-system", "--force")

	system := c.CoreV1().Secrets("kube-system")
	rotated, err := system.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-fedcba"}, Type: "bootstrap.kubernetes.io/token",
		StringData: map[string]string{"token-id": "fedcba", "token-secret": "0123456789abcdef"},
	}, metav1.CreateOptions{})
	harness.Must(t, err)
	_, err = system.Patch(ctx, "bootstrap-token-fedcba", types.MergePatchType, []byte(`{"stringData":{"token-secret":"fedcba9876543210"}}`), metav1.PatchOptions{})
	harness.Must(t, err)
	leaves(isRevoked, "secret/bootstrap-token-fedcba", "-n", "kube-system", "--to", rotated.ResourceVersion, "--force")

	// The authenticator of service accounts' tokens looks for the token in the Secret that it names, whatever its type is.
	claims := base64.RawURLEncoding.EncodeToString([]byte(`{"kubernetes.io/serviceaccount/secret.name":"copied"}`))
	_, err = c.CoreV1().Secrets("default").Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "copied"}, StringData: map[string]string{"token": "e30." + claims + ".e30"}}, metav1.CreateOptions{})
	harness.Must(t, err)
	harness.Must(t, c.CoreV1().Secrets("default").Delete(ctx, "copied", metav1.DeleteOptions{}))
	leaves(isRevoked, "secret/copied", "-n", "default")

	lock, err := c.CoreV1().Secrets("default").Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "lock"}}, metav1.CreateOptions{})
	harness.Must(t, err)
	accounts := c.CoreV1().ServiceAccounts("default")
	var tokens []string
	for _, bound := range []*authenticationv1.BoundObjectReference{nil, {APIVersion: "v1", Kind: "Secret", Name: "lock", UID: lock.UID}} {
		name := map[bool]string{true: "leaver", false: "keeper"}[bound == nil]
		_, err := accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		harness.Must(t, err)
		token, err := accounts.CreateToken(ctx, name, &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: bound}}, metav1.CreateOptions{})
		harness.Must(t, err)
		tokens = append(tokens, token.Status.Token)
	}
	harness.Must(t, accounts.Delete(ctx, "leaver", metav1.DeleteOptions{}))
	harness.Must(t, c.CoreV1().Secrets("default").Delete(ctx, "lock", metav1.DeleteOptions{}))
	for i, args := range [][]string{{"sa/leaver", "-n", "default"}, {"secret/lock", "-n", "default"}} {
		if answer := undoes(t, s, args...); !answer.Status.Complete || answer.Status.Plan[0].Action != undos.Create {
			t.Errorf("undo %q is %+v", args, answer.Status)
		}
		review, err := c.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: tokens[i]}}, metav1.CreateOptions{})
		harness.Must(t, err)
		if review.Status.Authenticated {
			t.Errorf("after undo %q, a token from before is valid", args)
		}
	}
}
