package main

import (
	"context"
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sqube/sqube/test/harness/everykind"
)

// addForms adds values in forms that this kube-apiserver reads but does not write: JSON of a built-in resource, and two keys
// changed at one revision.
func addForms(ctx context.Context, s state, f *everykind.Filler) error {
	object, err := f.Client.CoreV1().ConfigMaps("default").Get(ctx, "plain", metav1.GetOptions{})
	if err != nil {
		return err
	}
	object.APIVersion, object.Kind = "v1", "ConfigMap"
	object.ResourceVersion = ""
	values := map[string][]byte{}
	for name, uid := range map[string]string{"json-1": "11111111-1111-1111-1111-111111111111", "json-2": "22222222-2222-2222-2222-222222222222"} {
		object.Name, object.UID = name, types.UID(uid)
		if values["/registry/configmaps/default/"+name], err = json.Marshal(object); err != nil {
			return err
		}
	}
	return s.put(ctx, values)
}

// addUnreadable adds what can't be imported.
func addUnreadable(ctx context.Context, s state) error {
	object, err := s.get(ctx, "/registry/configmaps/default/plain")
	if err != nil {
		return err
	}
	encrypted, err := s.get(ctx, "/registry/secrets/default/password")
	if err != nil {
		return err
	}
	return s.put(ctx, map[string][]byte{
		"/registry/configmaps/default/broken":         []byte("k8s\x00broken"),
		"/registry/configmaps/default/misplaced":      object,
		"/registry/secrets/default/moved":             encrypted,
		"/registry/podsecuritypolicy/restricted":      []byte(`{"kind":"PodSecurityPolicy","apiVersion":"policy/v1beta1","metadata":{"name":"restricted"}}`),
		"/registry/gone.example.com/things/default/a": []byte(`{"kind":"Thing","apiVersion":"gone.example.com/v1","metadata":{"name":"a","namespace":"default"}}`),
		"/registry/masterleases/10.0.0.1":             object,
		"/elsewhere":                                  []byte("not of Kubernetes"),
	})
}
