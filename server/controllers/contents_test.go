package controllers

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestContents finds that requests are sent unless a resource is known to be empty.
func TestContents(t *testing.T) {
	for name, test := range map[string]struct {
		empty    bool
		err      error
		requests int
	}{
		"empty":     {empty: true},
		"not empty": {requests: 2},
		"unknown":   {empty: true, err: errors.New("the database does not answer"), requests: 2},
	} {
		_, client := newTestInformers(t)
		configMaps := contents{client, func(context.Context, schema.GroupVersionResource, string) (bool, error) {
			return test.empty, test.err
		}}.Resource(corev1.SchemeGroupVersion.WithResource("configmaps")).Namespace("default")
		if err := configMaps.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if list, err := configMaps.List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) != 0 {
			t.Errorf("%s: the list is %v, %v", name, list, err)
		}
		if sent := client.Actions(); len(sent) != test.requests {
			t.Errorf("%s: the requests are %v", name, sent)
		}
	}
}
