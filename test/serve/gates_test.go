package serve

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	componentversion "k8s.io/component-base/version"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

var everyGate = flag.Bool("every-gate", false, "flip each feature gate alone, too: one server for each of some 700")

// TestFeatureGates flips every feature gate that can be set in each version that can be emulated. Servers with many flipped gates must
// work; if one does not, the test looks for the gates that it is due to.
func TestFeatureGates(t *testing.T) {
	t.Parallel()
	newest := version.MustParse(componentversion.DefaultKubeBinaryVersion)
	for back := range uint(4) {
		emulated := newest.SubtractMinor(back).String()
		t.Run(emulated, func(t *testing.T) {
			t.Parallel()
			trial := gateTrial{t: t, args: []string{"--control-plane", "--emulated-version=" + emulated, "--runtime-config=api/all=true"}}
			if back > 0 {
				trial.args = append(trial.args, "--runtime-config-emulation-forward-compatible")
			}
			metrics := ""
			if err := trial.serve(nil, &metrics); err != nil {
				t.Fatalf("without a flipped gate: %v", err)
			}
			var flipped [2][]string
			for _, found := range regexp.MustCompile(`kubernetes_feature_enabled\{name="(\w+)",.*\} ([01])\n`).FindAllStringSubmatch(metrics, -1) {
				if is := found[2] == "1"; found[1] != "AllAlpha" && found[1] != "AllBeta" {
					n, _ := strconv.Atoi(found[2])
					flipped[n] = append(flipped[n], fmt.Sprintf("%s=%t", found[1], !is))
				}
			}
			for _, gates := range flipped {
				if len(gates) < 20 {
					t.Fatalf("there are only the gates %v", gates)
				}
				trial.find(gates)
				for _, gate := range gates {
					if *everyGate && trial.try([]string{gate}) != nil {
						trial.find([]string{gate})
					}
				}
			}
		})
	}
}

// gateTrial starts servers with flipped gates.
type gateTrial struct {
	t    *testing.T
	args []string
}

// find fails the test if a server with these gates does not work, and names as few of them as it can.
func (g *gateTrial) find(gates []string) {
	err := g.try(gates)
	if err == nil {
		return
	}
	if half := len(gates) / 2; half > 0 {
		for _, part := range [][]string{gates[:half], gates[half:]} {
			if g.try(part) != nil {
				g.find(part)
				return
			}
		}
	}
	g.t.Errorf("--feature-gates=%s: %v", strings.Join(gates, ","), err)
}

var (
	locked    = regexp.MustCompile(`cannot set feature gate (\w+) to`)
	needed    = regexp.MustCompile(`(\w+) is enabled, but depends on features that are disabled: \[([\w ]+)\]`)
	notServed = regexp.MustCompile(`^sqube: the server needs .*: add (--runtime-config=\S+), with --emulated-version`)
)

// try starts a server with these gates, without those that are locked, or that others that are on depend on. It turns APIs on as
// refusals suggest.
func (g *gateTrial) try(gates []string) error {
	set, args := map[string]string{}, g.args
	for _, gate := range gates {
		name, value, _ := strings.Cut(gate, "=")
		set[name] = value
	}
	for {
		given := make([]string, 0, len(set)) // in one flag, so that one refusal names all that are locked
		for _, name := range slices.Sorted(maps.Keys(set)) {
			given = append(given, name+"="+set[name])
		}
		err := (&gateTrial{g.t, args}).serve([]string{"--feature-gates=" + strings.Join(given, ",")}, nil)
		var refusal refused
		if !errors.As(err, &refusal) {
			return err
		}
		remaining := len(set)
		for _, pattern := range []*regexp.Regexp{locked, needed} {
			for _, found := range pattern.FindAllStringSubmatch(string(refusal), -1) {
				for _, name := range strings.Fields(strings.Join(found[1:], " ")) {
					delete(set, name)
				}
			}
		}
		if found := notServed.FindStringSubmatch(string(refusal)); found != nil && !slices.Contains(args, found[1]) {
			args = append(slices.Clone(args), found[1])
		} else if len(gates) == 1 && remaining > len(set) {
			return nil // one line says why
		} else if remaining == len(set) {
			return err
		}
	}
}

// refused is the only line of a server that ended at once.
type refused string

func (r refused) Error() string { return "refused: " + string(r) }

// serve starts a server, creates and lists objects, and stops it.
func (g *gateTrial) serve(gates []string, metrics *string) error {
	t := g.t
	s := sqube.Launch(t, sqube.Options{Args: slices.Concat([]string{"--in-memory"}, g.args, gates)})
	ctx, cancel := context.WithTimeout(t.Context(), 2*harness.Patience)
	defer cancel()
	if err := s.Ready(ctx); err != nil {
		if line := withoutNotices(s.Log(t)); !s.Runs() && oneLine(line, "") == nil {
			return refused(line)
		}
		return err
	}
	err := g.use(s, metrics)
	harness.Must(t, s.Signal(syscall.SIGTERM))
	if code := s.Code(t); code != 0 {
		err = errors.Join(err, fmt.Errorf("it ended with code %d", code))
	}
	if strings.Contains(s.Log(t), "panic") {
		err = errors.Join(err, errors.New("the log has a panic"))
	}
	return err
}

// withoutNotices leaves out what Kubernetes' libraries log about gates and APIs.
func withoutNotices(log string) string {
	return regexp.MustCompile(`(?m)^.* level=(INFO|WARN) .*\n`).ReplaceAllString(log, "")
}

// use creates a few objects and reads everything.
func (g *gateTrial) use(s *sqube.Server, metrics *string) error {
	ctx, c := g.t.Context(), client(g.t, s.Kubeconfig)
	_, err := c.CoreV1().Services("default").Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	errs := []error{err}
	_, err = c.CoreV1().ServiceAccounts("default").Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "web"}}, metav1.CreateOptions{})
	errs = append(errs, err)
	_, err = c.CoreV1().Pods("default").Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       corev1.PodSpec{ServiceAccountName: "web", Containers: []corev1.Container{{Name: "web", Image: "web"}}},
	}, metav1.CreateOptions{})
	errs = append(errs, err, c.CoreV1().Services("default").Delete(ctx, "web", metav1.DeleteOptions{}))
	_, all, err := c.Discovery().ServerGroupsAndResources()
	errs = append(errs, err)
	for _, version := range all {
		path := "/apis/" + version.GroupVersion
		if version.GroupVersion == "v1" {
			path = "/api/v1"
		}
		for _, r := range version.APIResources {
			if slices.Contains(r.Verbs, "list") {
				errs = append(errs, c.Discovery().RESTClient().Get().AbsPath(path, r.Name).Do(ctx).Error())
			}
		}
	}
	text, err := c.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if metrics != nil {
		*metrics = string(text)
	}
	return errors.Join(append(errs, err)...)
}

// TestAddressesOfServices allocates addresses of Services on one database as objects, and as Kubernetes 1.34 can also in bitmaps.
func TestAddressesOfServices(t *testing.T) {
	t.Parallel()
	dataDir, taken := filepath.Join(t.TempDir(), "data"), map[string]string{}
	for i, gates := range []string{
		"", "--feature-gates=DisableAllocatorDualWrite=false", "", "--feature-gates=DisableAllocatorDualWrite=true", "--feature-gates=DisableAllocatorDualWrite=false",
	} {
		args := []string{"--service-cluster-ip-range=10.0.0.0/27,fd00::/112"}
		if gates != "" {
			args = append(args, "--emulated-version=1.34", gates)
		}
		s := serveIn(t, dataDir, args)
		services := client(t, s.Kubeconfig).CoreV1().Services("default")
		for n := range 4 {
			dual := corev1.IPFamilyPolicyRequireDualStack
			service, err := services.Create(t.Context(), &corev1.Service{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("web-%d-%d", i, n)},
				Spec:       corev1.ServiceSpec{IPFamilyPolicy: &dual, Ports: []corev1.ServicePort{{Port: 80}}},
			}, metav1.CreateOptions{})
			harness.Must(t, err)
			for _, address := range service.Spec.ClusterIPs {
				if other := taken[address]; other != "" {
					t.Errorf("with %q, the Services %s and %s both have %s", gates, other, service.Name, address)
				}
				taken[address] = service.Name
			}
		}
		for address, owner := range taken {
			_, err := services.Create(t.Context(), &corev1.Service{
				ObjectMeta: metav1.ObjectMeta{Name: "thief"},
				Spec:       corev1.ServiceSpec{ClusterIP: address, Ports: []corev1.ServicePort{{Port: 80}}},
			}, metav1.CreateOptions{})
			if !apierrors.IsInvalid(err) {
				t.Errorf("with %q, another Service gets %s of %s: %v", gates, address, owner, err)
			}
		}
		s.Stop(t)
	}
	refusesAfterWarnings(t, "--service-cluster-ip-range fd00::/64 must be /108 or smaller unless --feature-gates=DisableAllocatorDualWrite=true",
		serveArgs(t, t.TempDir(), "--emulated-version=1.34", "--feature-gates=DisableAllocatorDualWrite=false", "--service-cluster-ip-range=fd00::/64", "--advertise-address=fd01::1"))
}

// TestAPIsThatTheServerNeeds turns off APIs that the server reads.
func TestAPIsThatTheServerNeeds(t *testing.T) {
	t.Parallel()
	dataDir := filepath.Join(t.TempDir(), "data")
	refusesAfterWarnings(t, "MutatingAdmissionPolicyBinding of admissionregistration.k8s.io/v1, which it does not serve: add --runtime-config=admissionregistration.k8s.io/v1=true",
		serveArgs(t, dataDir, "--emulated-version=1.35", "--feature-gates=MutatingAdmissionPolicy=true"))
	refuses(t, "ServiceCIDR of networking.k8s.io/v1", serveArgs(t, dataDir, "--runtime-config=networking.k8s.io/v1=false"))
}
