package server

import (
	"encoding/json"
	"math/rand"
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	"k8s.io/client-go/kubernetes/scheme"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	volumecommon "k8s.io/kubernetes/pkg/controller/volume/common"
	quotacore "k8s.io/kubernetes/pkg/quota/v1/evaluator/core"
	volumeutil "k8s.io/kubernetes/pkg/volume/util"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"k8s.io/utils/clock"

	"github.com/sqube/sqube/test/harness"
)

// readings has, for each reader of the shared informers, what it computes from a pod.
var readings = map[string]func(*testing.T, *corev1.Pod) any{
	"quota": func(t *testing.T, pod *corev1.Pod) any {
		evaluator := quotacore.NewPodEvaluator(nil, clock.RealClock{})
		usage, err := evaluator.Usage(pod)
		harness.Must(t, err)
		var scopes []corev1.ScopedResourceSelectorRequirement
		for _, name := range []corev1.ResourceQuotaScope{
			corev1.ResourceQuotaScopeTerminating, corev1.ResourceQuotaScopeBestEffort,
			corev1.ResourceQuotaScopePriorityClass, corev1.ResourceQuotaScopeCrossNamespacePodAffinity,
		} {
			scopes = append(scopes, corev1.ScopedResourceSelectorRequirement{ScopeName: name, Operator: corev1.ScopeSelectorOpExists})
		}
		matching, err := evaluator.MatchingScopes(pod, scopes)
		harness.Must(t, err)
		return []any{usage, matching}
	},
	"Node authorizer": func(_ *testing.T, pod *corev1.Pod) any {
		var secrets, configMaps []string
		podutil.VisitPodSecretNames(pod, func(name string) bool { secrets = append(secrets, name); return true })
		podutil.VisitPodConfigmapNames(pod, func(name string) bool { configMaps = append(configMaps, name); return true })
		_, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]
		return []any{secrets, configMaps, mirror, pod.Spec.NodeName, pod.Spec.ServiceAccountName, pod.Spec.ResourceClaims,
			pod.Status.ResourceClaimStatuses, pod.Status.ExtendedResourceClaimStatus}
	},
	"protection of claims": func(t *testing.T, pod *corev1.Pod) any {
		claims, err := volumecommon.PodPVCIndexFunc()(pod)
		harness.Must(t, err)
		return []any{claims, volumeutil.IsPodTerminated(pod, pod.Status)}
	},
	"PodSecurity": func(t *testing.T, pod *corev1.Pod) any {
		evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
		harness.Must(t, err)
		results := evaluator.EvaluatePod(api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}, &pod.ObjectMeta, &pod.Spec)
		return append(results, evaluator.EvaluatePod(api.LevelVersion{Level: api.LevelBaseline, Version: api.LatestVersion()}, &pod.ObjectMeta, &pod.Spec)...)
	},
	"garbage collector": func(_ *testing.T, pod *corev1.Pod) any {
		return []any{pod.Name, pod.Namespace, pod.UID, pod.ResourceVersion, pod.OwnerReferences, pod.Finalizers, pod.DeletionTimestamp}
	},
}

// TestSlimPods checks that readers compute the same from slim pods as from whole ones.
func TestSlimPods(t *testing.T) {
	fill := fuzzer.FuzzerFor(fuzzer.MergeFuzzerFuncs(metafuzzer.Funcs), rand.NewSource(1), scheme.Codecs)
	s := new(podSlimmer)
	for i := range 300 {
		var whole corev1.Pod
		fill.Fill(&whole)
		whole.Spec.SchedulerName = "default-scheduler"
		if i%2 == 0 {
			whole.Annotations = map[string]string{
				corev1.MirrorPodAnnotationKey:                                   "",
				corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix + "c": "unconfined",
				corev1.SeccompPodAnnotationKey:                                  "unconfined",
			}
		}
		slim := whole.DeepCopy()
		if _, err := s.transform(slim); err != nil {
			t.Fatal(err)
		}
		for reader, read := range readings {
			if got, want := read(t, slim), read(t, &whole); !apiequality.Semantic.DeepEqual(got, want) && asJSON(t, got) != asJSON(t, want) {
				t.Errorf("%s: from a slim pod, got\n%s\nwant, as from the whole pod,\n%s", reader, asJSON(t, got), asJSON(t, want))
			}
		}
		again := slim.DeepCopy()
		if _, err := s.transform(again); err != nil || !reflect.DeepEqual(again, slim) {
			t.Errorf("transforming a slim pod again changed it, or failed: %v", err)
		}
	}
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	harness.Must(t, err)
	return string(text)
}

// TestSlimPodsShare checks that pods of the same template share their containers, and pods of different templates do not.
func TestSlimPodsShare(t *testing.T) {
	s := new(podSlimmer)
	pod := func(name, variable string) *corev1.Pod {
		p := &corev1.Pod{}
		p.Name, p.Spec.SchedulerName = name, "default-scheduler"
		p.Spec.Containers = []corev1.Container{{Name: "c", VolumeMounts: []corev1.VolumeMount{{Name: "token-" + name}}, Env: []corev1.EnvVar{
			{Name: "SELF", Value: name},
			{Name: "SECRET", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{Key: variable}}},
		}}}
		if _, err := s.transform(p); err != nil {
			t.Fatal(err)
		}
		return p
	}
	a, b, other := pod("a", "x"), pod("b", "x"), pod("c", "y")
	if &a.Spec.Containers[0] != &b.Spec.Containers[0] {
		t.Error("pods of a template do not share their containers")
	}
	if slices.ContainsFunc(a.Spec.Containers[0].Env, func(v corev1.EnvVar) bool { return v.Name == "SELF" }) {
		t.Errorf("kept: %v", a.Spec.Containers[0].Env)
	}
	if got := other.Spec.Containers[0].Env[0].ValueFrom.SecretKeyRef.Key; got != "y" {
		t.Errorf("a pod of another template has the key %q", got)
	}
}

// TestWholePodsShare checks that whole pods share the fields that come from their template, and lose none of their fields.
func TestWholePodsShare(t *testing.T) {
	fill := fuzzer.FuzzerFor(fuzzer.MergeFuzzerFuncs(metafuzzer.Funcs), rand.NewSource(1), scheme.Codecs)
	s := &podSlimmer{whole: true}
	for range 100 {
		var pod corev1.Pod
		fill.Fill(&pod)
		pod.ManagedFields = nil
		held := []*corev1.Pod{pod.DeepCopy(), pod.DeepCopy()}
		for i, p := range held {
			for c := range p.Spec.Containers {
				p.Spec.Containers[c].VolumeMounts = []corev1.VolumeMount{{Name: string(rune('a' + i))}}
			}
			want := p.DeepCopy()
			if _, err := s.transform(p); err != nil {
				t.Fatal(err)
			}
			if !apiequality.Semantic.DeepEqual(p, want) {
				t.Fatalf("a whole pod has become\n%s\nwant\n%s", asJSON(t, p), asJSON(t, want))
			}
		}
		for c := range pod.Spec.Containers {
			if a, b := held[0].Spec.Containers[c].Env, held[1].Spec.Containers[c].Env; len(a) > 0 && &a[0] != &b[0] {
				t.Error("pods of a template do not share their containers' variables")
			}
		}
	}
}

// TestSlimPodsBound checks that the size of the kept templates is limited.
func TestSlimPodsBound(t *testing.T) {
	s := new(podSlimmer)
	for i := range 40 {
		p := &corev1.Pod{}
		p.Spec.SchedulerName = "default-scheduler"
		p.Spec.Containers = []corev1.Container{{Name: string(rune('a' + i)), EnvFrom: []corev1.EnvFromSource{{Prefix: string(make([]byte, 200<<10))}}}}
		if _, err := s.transform(p); err != nil {
			t.Fatal(err)
		}
		if s.size > maxTemplates {
			t.Fatalf("%d bytes of templates", s.size)
		}
	}
}
