package replicas

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/sqube/sqube/test/harness"
)

// readElsewhere reads what was just acknowledged, with many clients at once, each from a different server than it wrote to.
func readElsewhere(t *testing.T, replicas []replica) {
	const clients, rounds = 8, 10
	var running sync.WaitGroup
	for c := range clients {
		running.Go(func() {
			for i := range rounds {
				if err := writeAndRead(t, fmt.Sprintf("read-%d-%d", c, i), replicas[(c+i)%3], replicas[(c+i+1+i%2)%3]); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	running.Wait()
}

// writeAndRead creates, updates and deletes an object on one server, and reads it from another after each.
func writeAndRead(t *testing.T, name string, writer, reader replica) error {
	ctx := t.Context()
	here, there := writer.CoreV1().ConfigMaps("default"), reader.CoreV1().ConfigMaps("default")
	object, err := here.Create(ctx, configMap(name), metav1.CreateOptions{})
	if err != nil {
		return err
	}
	got, err := there.Get(ctx, name, metav1.GetOptions{})
	if err != nil || got.ResourceVersion != object.ResourceVersion {
		return fmt.Errorf("get after a create: %v, %w", got, err)
	}
	object.Data = map[string]string{"a": "b"}
	if object, err = here.Update(ctx, object, metav1.UpdateOptions{}); err != nil {
		return err
	}
	list, err := there.List(ctx, ours)
	if err != nil || !slices.ContainsFunc(list.Items, func(c corev1.ConfigMap) bool { return c.ResourceVersion == object.ResourceVersion }) {
		return fmt.Errorf("list after an update: %v, %w", list, err)
	}
	if err := here.Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &object.ResourceVersion}}); err != nil {
		return err
	}
	if _, err := there.Get(ctx, name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		return fmt.Errorf("get after a delete: %w", err)
	}
	return nil
}

// listMoves pages through a list, each page from another server, while the objects change.
func listMoves(t *testing.T, replicas []replica) {
	const objects, page = 23, 5
	maps := func(i int) corev1client.ConfigMapInterface {
		return replicas[i%len(replicas)].CoreV1().ConfigMaps("default")
	}
	name := func(i int) string { return fmt.Sprintf("page-%02d", i) }
	for i := range objects {
		if _, err := maps(i).Create(t.Context(), configMap(name(i)), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	whole, err := maps(0).List(t.Context(), ours)
	harness.Must(t, err)
	options := metav1.ListOptions{LabelSelector: ours.LabelSelector, Limit: page}
	var got []corev1.ConfigMap
	for i := 0; ; i++ {
		list, err := maps(i).List(t.Context(), options)
		harness.Must(t, err)
		got = append(got, list.Items...)
		if options.Continue = list.Continue; options.Continue == "" {
			break
		}
		// None of this is in the snapshot: on a third server the last object is updated, the one before it is deleted, and
		// another is created.
		last := configMap(name(objects - 1))
		last.Data = map[string]string{"page": fmt.Sprint(i)}
		if _, err := maps(i+2).Update(t.Context(), last, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		harness.Must(t, maps(i+2).Delete(t.Context(), name(objects-2-i), metav1.DeleteOptions{}))
		if _, err := maps(i+2).Create(t.Context(), configMap(fmt.Sprint("page-new-", i)), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(versions(got), versions(whole.Items)) {
		t.Errorf("the pages have %v, the whole list has %v", versions(got), versions(whole.Items))
	}
}

// versions returns the name and version of each object.
func versions(objects []corev1.ConfigMap) []string {
	var names []string
	for _, o := range objects {
		names = append(names, o.Name+"@"+o.ResourceVersion)
	}
	return names
}
