package deploy

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/sqube/sqube/test/harness"
)

// dashboard is the tested part of Grafana's dashboard model.
type dashboard struct {
	Title         string `json:"title"`
	UID           string `json:"uid"`
	SchemaVersion int    `json:"schemaVersion"`
	Annotations   struct {
		List []struct{ Expr string } `json:"list"`
	} `json:"annotations"`
	Templating struct {
		List []struct{ Name, Type string } `json:"list"`
	} `json:"templating"`
	Panels []panel `json:"panels"`
}

type panel struct {
	ID          int    `json:"id"`
	Type        string `json:"type"`
	Title       string `json:"title"`
	Description string `json:"description"`
	GridPos     struct{ H, W, X, Y int }
	Datasource  datasource `json:"datasource"`
	Targets     []struct {
		RefID      string     `json:"refId"`
		Datasource datasource `json:"datasource"`
		Expr       string     `json:"expr"`
		Legend     string     `json:"legendFormat"`
	} `json:"targets"`
}

type datasource struct{ Type, UID string }

func readDashboard(t *testing.T) *dashboard {
	t.Helper()
	text, err := os.ReadFile(chart + "/files/dashboard.json")
	harness.Must(t, err)
	var d dashboard
	harness.Must(t, json.NewDecoder(bytes.NewReader(text)).Decode(&d))
	return &d
}

// queries returns the queries of all panels, with values for the variables.
func (d *dashboard) queries() []string {
	values := strings.NewReplacer("$__rate_interval", "1m", "$namespace", ".*", "$instance", ".*")
	var queries []string
	for _, annotation := range d.Annotations.List {
		queries = append(queries, values.Replace(annotation.Expr))
	}
	for _, panel := range d.Panels {
		for _, target := range panel.Targets {
			queries = append(queries, values.Replace(target.Expr))
		}
	}
	return queries
}

// TestDashboard checks what could break in Grafana: ids, positions, variables and queries.
func TestDashboard(t *testing.T) {
	t.Parallel()
	d := readDashboard(t)
	if d.Title == "" || d.UID == "" || d.SchemaVersion < 39 {
		t.Errorf("it is %q, %q, of version %d", d.Title, d.UID, d.SchemaVersion)
	}
	var variables []string
	for _, variable := range d.Templating.List {
		variables = append(variables, variable.Name)
	}
	if want := []string{"datasource", "namespace", "instance"}; !slices.Equal(variables, want) {
		t.Errorf("the variables are %v", variables)
	}
	ids, places := map[int]string{}, map[[2]int]string{}
	for _, panel := range d.Panels {
		if other, taken := ids[panel.ID]; taken {
			t.Errorf("%q and %q have the same id", panel.Title, other)
		}
		ids[panel.ID] = panel.Title
		if panel.GridPos.X+panel.GridPos.W > 24 || panel.GridPos.W < 1 || panel.GridPos.H < 1 {
			t.Errorf("%q is at %+v", panel.Title, panel.GridPos)
		}
		for x := range panel.GridPos.W {
			for y := range panel.GridPos.H {
				place := [2]int{panel.GridPos.X + x, panel.GridPos.Y + y}
				if other, taken := places[place]; taken {
					t.Fatalf("%q overlaps %q", panel.Title, other)
				}
				places[place] = panel.Title
			}
		}
		if panel.Type == "row" {
			continue
		}
		if panel.Title == "" || panel.Description == "" || len(panel.Targets) == 0 {
			t.Errorf("panel %d lacks a title, a description or queries", panel.ID)
		}
		want := datasource{"prometheus", "${datasource}"}
		for _, target := range panel.Targets {
			if panel.Datasource != want || target.Datasource != want {
				t.Errorf("%q queries %+v", panel.Title, target.Datasource)
			}
		}
	}
	checkQueries(t, d.queries())
}
