{{- define "pointsman.labels" -}}
app.kubernetes.io/name: pointsman
app.kubernetes.io/component: controller
{{- end }}

{{- define "pointsman.image" -}}
{{- $image := .Values.image -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ $image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{- define "pointsman.listen" -}}
{{- if contains ":" .Values.bindAddress -}}[{{ .Values.bindAddress }}]{{- else -}}{{ .Values.bindAddress }}{{- end -}}
{{- end }}

{{- /* Name of objects outside the release's namespace, which says which installation they belong to. */}}
{{- define "pointsman.elsewhere" -}}
pointsman-controller.{{ .Release.Namespace }}
{{- end }}
