package servertest_test

import (
	"os"
	"os/exec"
	"regexp"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"

	"github.com/sqube/sqube/server/servertest"
)

// planted is set in the process whose controllers have a race.
var planted = os.Getenv("PLANTED_RACE") != ""

var races = map[string]func(t *testing.T, s *servertest.Server){"finalizer": protects, "child": makesOneChild}

// TestRaces checks that Explore finds the races in two controllers, that the seeds find them again, and that it finds nothing in the
// corrected controllers.
func TestRaces(t *testing.T) {
	for name, test := range races {
		t.Run(name, func(t *testing.T) {
			if planted {
				servertest.Explore(t, servertest.Exploration{Options: servertest.Options{NoControllers: true}}, test)
				return
			}
			servertest.Explore(t, servertest.Exploration{Options: servertest.Options{NoControllers: true}, Seeds: 3}, test)
			found := plant(t, "^TestRaces$/^"+name+"$")
			once := regexp.MustCompile(`once more: go test \S+/servertest -run '(\S+)'`).FindSubmatch(found)
			if once == nil {
				t.Fatalf("no seed to run again:\n%s", found)
			}
			plant(t, string(once[1]))
		})
	}
}

// plant runs tests in a process whose controllers have a race, and returns what it prints when it finds the race.
func plant(t *testing.T, tests string) []byte {
	t.Helper()
	program := exec.CommandContext(t.Context(), os.Args[0], "-test.run", tests)
	program.Env = append(os.Environ(), "PLANTED_RACE=1")
	output, err := program.CombinedOutput()
	if err == nil {
		t.Errorf("no race is found: %s", output)
	}
	return output
}

// protects checks that a controller adds its finalizer to an object beside another one's.
func protects(t *testing.T, s *servertest.Server) {
	start(t, s.Unsteady(s.Config), protector)
	time.Sleep(time.Second)
	configMaps := kubernetes.NewForConfigOrDie(s.Config).CoreV1().ConfigMaps("default")
	_, err := configMaps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: protected}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(100 * time.Millisecond)
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		c, err := configMaps.Get(t.Context(), "a", metav1.GetOptions{})
		if err == nil {
			c.Finalizers = append(c.Finalizers, "example.com/backup")
			_, err = configMaps.Update(t.Context(), c, metav1.UpdateOptions{})
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Minute)
	if c, err := configMaps.Get(t.Context(), "a", metav1.GetOptions{}); err != nil || len(c.Finalizers) != 2 {
		t.Errorf("the object has the finalizers %v: %v", c.Finalizers, err)
	}
}

// makesOneChild checks that a controller makes one child of an object that changes meanwhile.
func makesOneChild(t *testing.T, s *servertest.Server) {
	start(t, s.Unsteady(s.Config), parent)
	time.Sleep(time.Second)
	core := kubernetes.NewForConfigOrDie(s.Config).CoreV1()
	c, err := core.ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: protected}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(100 * time.Millisecond)
	c.Data = map[string]string{"changed": "1"}
	if _, err = core.ConfigMaps("default").Update(t.Context(), c, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Minute)
	if children, err := core.Secrets("default").List(t.Context(), metav1.ListOptions{}); err != nil || len(children.Items) != 1 {
		t.Errorf("the object has %d children: %v", len(children.Items), err)
	}
}
