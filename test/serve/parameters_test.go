package serve

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// TestPolicyParameters changes the parameters of policies of both kinds, by name and by labels, of a built-in and of a custom kind, also
// while no policy is bound to them. The next request is admitted by the stored value, also the first one after a restart.
func TestPolicyParameters(t *testing.T) {
	t.Parallel()
	harness.Engines(t, func(t *testing.T, engine harness.Engine) {
		s := sqube.Start(t, sqube.Options{Datastore: engine.Datastore})
		config := s.Config(t)
		config.QPS = -1
		_, err := clientset.NewForConfigOrDie(config).ApiextensionsV1().CustomResourceDefinitions().Create(t.Context(), plain("limit"), metav1.CreateOptions{})
		harness.Must(t, err)
		var policies []parameterized
		for _, kind := range []string{"validating", "mutating"} {
			for _, parameter := range []string{"v1 ConfigMap /api/v1/namespaces/default/configmaps", "example.com/v1 limit /apis/example.com/v1/namespaces/default/limits"} {
				for _, by := range []string{"name", "selector"} {
					f := strings.Fields(parameter)
					policies = append(policies, parameterized{
						Interface: kubernetes.NewForConfigOrDie(config).CoreV1().RESTClient(), kind: kind, version: f[0], parameter: f[1], path: f[2], by: by,
						name: strings.ToLower(kind + "-" + f[1] + "-" + by),
					})
				}
			}
		}
		t.Run("", func(t *testing.T) {
			for _, p := range policies {
				t.Run(p.name, func(t *testing.T) {
					t.Parallel()
					p.change(t)
				})
			}
		})
		s.Stop(t)
		s.Start(t)
		for _, p := range policies {
			if err := p.enforced(t, "last", "former"); err != nil {
				t.Errorf("%s after a restart: %v", p.name, err)
			}
			harness.Must(t, p.Delete().AbsPath(p.path, p.name).Do(t.Context()).Error())
			if err := p.given(t, "last", "last"); err == nil || !strings.Contains(err.Error(), "no params found for policy binding") {
				t.Errorf("%s without its parameter: %v", p.name, err)
			}
		}
	})
}

// parameterized is a policy with a parameter of the same name. It concerns ConfigMaps with a label. If it is validating, it
// denies another value than the parameter's, and if it is mutating, it sets that value.
type parameterized struct {
	rest.Interface                           // of an administrator
	kind, version, parameter, path, by, name string
}

const registration = "/apis/admissionregistration.k8s.io/v1/"

func (p parameterized) change(t *testing.T) {
	harness.Retry(t, "the parameter can be created", func() error { // once its kind is served
		return p.post(t, p.path, `{"apiVersion":%q,"kind":%q,"metadata":{"name":%q,"labels":{"for":%[3]q}},"data":{"value":"first"}}`, p.version, p.parameter, p.name)
	})
	does := `"validations":[{"expression":"object.data.value == params.data.value"}]`
	if p.kind == "mutating" {
		does = `"reinvocationPolicy":"Never","mutations":[{"patchType":"ApplyConfiguration","applyConfiguration":{"expression":"Object{data: {'value': params.data.value}}"}}]`
	}
	harness.Must(t, p.post(t, registration+p.kind+"admissionpolicies", `{"metadata":{"name":%q},"spec":{"failurePolicy":"Fail","paramKind":{"apiVersion":%q,"kind":%q},
		"matchConstraints":{"objectSelector":{"matchLabels":{"tries":%[1]q}},"resourceRules":[{"operations":["CREATE"],"apiGroups":[""],"apiVersions":["v1"],"resources":["configmaps"]}]},%[4]s}}`,
		p.name, p.version, p.parameter, does))
	p.bind(t)
	harness.Retry(t, "the policy is enforced", func() error { return p.enforced(t, "first", "none") })

	harness.Must(t, p.Delete().AbsPath(registration, p.kind+"admissionpolicybindings", p.name).Do(t.Context()).Error())
	harness.Retry(t, "the policy is not enforced any more", func() error { return p.given(t, "none", "none") })
	p.set(t, "second")
	p.bind(t)
	harness.Retry(t, "the policy is enforced again", func() error { return p.enforced(t, "second", "first") })
	former := "second"
	for i := range 20 {
		value := fmt.Sprint("value-", i)
		p.set(t, value)
		if err := p.enforced(t, value, former); err != nil {
			t.Fatalf("after a change: %v", err)
		}
		former = value
	}
	p.set(t, "last")
}

func (p parameterized) bind(t *testing.T) {
	ref := fmt.Sprintf(`"name":%q`, p.name)
	if p.by == "selector" {
		ref = fmt.Sprintf(`"selector":{"matchLabels":{"for":%q}}`, p.name)
	}
	actions := ""
	if p.kind == "validating" {
		actions = `"validationActions":["Deny"],`
	}
	harness.Must(t, p.post(t, registration+p.kind+"admissionpolicybindings",
		`{"metadata":{"name":%q},"spec":{"policyName":%[1]q,%[2]s"paramRef":{%[3]s,"parameterNotFoundAction":"Deny"}}}`, p.name, actions, ref))
}

func (p parameterized) post(t *testing.T, path, format string, args ...any) error {
	return p.Post().AbsPath(path).Body(fmt.Appendf(nil, format, args...)).Do(t.Context()).Error()
}

// set changes the parameter.
func (p parameterized) set(t *testing.T, value string) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"data":{"value":%q}}`, value)
	harness.Must(t, p.Patch(types.MergePatchType).AbsPath(p.path, p.name).Body(patch).Do(t.Context()).Error())
}

// enforced returns an error unless the policy has the value, and not another one, in its parameter.
func (p parameterized) enforced(t *testing.T, value, other string) error {
	if p.kind == "mutating" {
		return p.given(t, other, value)
	}
	if err := p.given(t, other, other); err == nil || !strings.Contains(err.Error(), "failed expression: object.data.value == params.data.value") {
		return fmt.Errorf("an object with %s is not denied: %v", other, err)
	}
	return p.given(t, value, value)
}

// given creates an object in a dry run, and returns an error unless it has the value want in the end.
func (p parameterized) given(t *testing.T, value, want string) error {
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "tried-", Labels: map[string]string{"tries": p.name}}, Data: map[string]string{"value": value}}
	made := &corev1.ConfigMap{}
	err := p.Post().AbsPath("/api/v1/namespaces/default/configmaps").Param("dryRun", "All").Body(object).Do(t.Context()).Into(made)
	if err != nil {
		return fmt.Errorf("an object with %s: %w", value, err)
	}
	if made.Data["value"] != want {
		return fmt.Errorf("an object with %s has %s, not %s", value, made.Data["value"], want)
	}
	return nil
}
