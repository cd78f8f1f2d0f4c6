package controllers

import (
	"slices"
	"strings"
	"testing"
)

func TestSelection(t *testing.T) {
	t.Parallel()
	others := []Controller{{Name: "deployment-controller", Aliases: []string{"deployment"}}, {Name: "selinux-warning-controller", Off: true}}
	api := Names()
	everything := append([]string{"deployment-controller"}, api...) // in the order in which they are built
	without := func(names ...string) []string {
		return slices.DeleteFunc(slices.Clone(everything), func(name string) bool { return slices.Contains(names, name) })
	}
	const collector, accounts = "garbage-collector-controller", "serviceaccount-controller"
	for _, test := range []struct {
		selection  string
		run, named []string // named: also beside a kube-controller-manager
	}{
		{"*", everything, nil},
		{"api", api, nil},
		{"api,deployment", everything, []string{"deployment-controller"}},
		{"*,selinux-warning-controller", append([]string{"deployment-controller", "selinux-warning-controller"}, api...), []string{"selinux-warning-controller"}},
		{"-deployment,*", api, nil},
		{"-*", nil, nil},
		{"", nil, nil},
		{"-" + collector, nil, nil}, // as in kube-controller-manager: nothing enables the others
		{"*,-" + collector, without(collector), nil},
		{"-garbagecollector,*", without(collector), nil},
		{"*,-garbagecollector,-serviceaccount", without(collector, accounts), nil},
		{accounts, []string{accounts}, []string{accounts}},
		{"*," + collector, everything, []string{collector}},
		{"pvc-protection,-*", []string{"persistentvolumeclaim-protection-controller"}, []string{"persistentvolumeclaim-protection-controller"}},
		{accounts + ",-" + accounts, []string{accounts}, []string{accounts}}, // the first counts
		{"-" + accounts + "," + accounts, nil, nil},
	} {
		selection := strings.Split(test.selection, ",")
		if test.selection == "" {
			selection = nil
		}
		if err := Validate(selection, others); err != nil {
			t.Errorf("%q: %v", test.selection, err)
		}
		for least, want := range map[choice][]string{byWildcard: test.run, named: test.named} {
			var got []string
			for _, c := range choose(Config{Others: others}.known(), selection, least) {
				got = append(got, c.fullName())
			}
			if !slices.Equal(got, want) {
				t.Errorf("%q runs %v, want %v", test.selection, got, want)
			}
		}
	}
	for selection, want := range map[string]string{
		"job-controller": `"job-controller" is not in the list of known controllers: namespace-controller, garbage-`,
		"*,-api":         `"api" is not in the list`,
		"*,-nodeipam":    `"nodeipam" is not in the list`,
		"*,namespaces":   `"namespaces" is not in the list`,
		"*,":             `"" is not in the list`,
		"--" + collector: `"-garbage-collector-controller" is not in the list`,
		"*,-" + collector + ",storage-version-migrator-controller": "storage-version-migrator-controller needs garbage-collector-controller",
	} {
		if err := Validate(strings.Split(selection, ","), others); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: got %v, want %s", selection, err, want)
		}
	}
}
