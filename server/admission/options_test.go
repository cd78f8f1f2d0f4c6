package admission

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	kubeoptions "k8s.io/kubernetes/pkg/kubeapiserver/options"
)

// defaultOn are kube-apiserver's plugins that are on by default, and the one that kubeadm adds, in order of execution.
var defaultOn = slices.DeleteFunc(slices.Clone(kubeoptions.AllOrderedPlugins), func(name string) bool {
	return kubeoptions.DefaultOffAdmissionPlugins().Has(name) && name != "NodeRestriction"
})

func parse(t *testing.T, args ...string) *Options {
	t.Helper()
	o := NewOptions()
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	fs.SetOutput(t.Output())
	o.AddFlags(fs)
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	return o
}

func TestNames(t *testing.T) {
	without := func(names ...string) []string {
		return slices.DeleteFunc(slices.Clone(defaultOn), func(n string) bool { return slices.Contains(names, n) })
	}
	withPullAlways := slices.Insert(slices.Clone(defaultOn), slices.Index(defaultOn, "PodSecurity"), "AlwaysPullImages")
	for _, c := range []struct {
		name string
		args []string
		want []string
	}{
		{"defaults", nil, defaultOn},
		{"one more", []string{"--enable-admission-plugins=AlwaysPullImages"}, withPullAlways},
		{"one that is on", []string{"--enable-admission-plugins=NodeRestriction"}, defaultOn},
		{"without NodeRestriction", []string{"--disable-admission-plugins=NodeRestriction"}, without("NodeRestriction")},
		{"two fewer", []string{"--disable-admission-plugins=LimitRanger,ResourceQuota"}, without("LimitRanger", "ResourceQuota")},
		{"the deprecated flag", []string{"--admission-control=ResourceQuota,NamespaceLifecycle"}, []string{"NamespaceLifecycle", "ResourceQuota"}},
	} {
		o := parse(t, c.args...)
		if err := o.Validate(); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if got := o.Names(); !slices.Equal(got, c.want) {
			t.Errorf("%s:\n got %v\nwant %v", c.name, got, c.want)
		}
	}
}

func TestWrongNames(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--enable-admission-plugins=Nope"}, `enable-admission-plugins plugin "Nope" is unknown`},
		{[]string{"--disable-admission-plugins=Nope"}, `disable-admission-plugins plugin "Nope" is unknown`},
		{[]string{"--enable-admission-plugins=PodSecurity", "--disable-admission-plugins=PodSecurity"},
			"[PodSecurity] in enable-admission-plugins and disable-admission-plugins overlapped"},
		{[]string{"--admission-control=Nope"}, `admission-control plugin "Nope" is unknown`},
	} {
		if err := parse(t, c.args...).Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: got %v, want %q", c.args, err, c.want)
		}
	}
}
