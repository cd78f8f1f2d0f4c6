package changes

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/sqube/sqube/sqlstore/fieldpath"
)

// FieldChange is a field of an object that becomes another one. Values are JSON; of secret ones, there are only sizes.
type FieldChange struct {
	Path string `json:"path"`
	From string `json:"from,omitempty" doc:"The JSON of the value; absent if there is none."`
	To   string `json:"to,omitempty" doc:"The JSON of what it becomes; absent if it is removed."`
}

// FieldChanges are differences as they are shown: of secret values, only sizes, and of long ones, how they begin.
func FieldChanges(hidden *Hidden, all []fieldpath.Difference) []FieldChange {
	shown := make([]FieldChange, 0, len(all))
	for _, d := range all {
		of := hidden.Of(d.Path)
		secret := of.Hides(d.Old) || of.Hides(d.New)
		text := func(value any) string {
			if value == nil {
				return ""
			}
			if secret {
				return Sized(of.Size(value))
			}
			encoded, err := json.Marshal(value)
			if err != nil {
				return err.Error()
			}
			if len(encoded) > maxValue {
				return fmt.Sprintf("%s… (%d bytes)", strings.ToValidUTF8(string(encoded[:maxValue]), ""), len(encoded))
			}
			return string(encoded)
		}
		shown = append(shown, FieldChange{Path: d.Path, From: text(d.Old), To: text(d.New)})
	}
	return shown
}
