package resources
import "testing"
func BenchmarkTC(b *testing.B){ b.ReportAllocs(); for i:=0;i<b.N;i++{ if _,err:=NewTypeConverter();err!=nil{b.Fatal(err)}}}
